// Transactions of ../README.md. kafkajs speaks the protocol from before KIP-890.
'use strict'

const assert = require('node:assert/strict')
const { randomBytes } = require('node:crypto')

const PARTITIONS = 4
const PIPELINE_PARTITIONS = 2
const CHUNK = 10 // records in one transaction of a pipeline
const LONG_MS = 60_000
const SHORT_MS = 3_000
const WAIT_LIMIT_MS = 30_000
const OPEN_FOR_MS = 1_000 // how long a reader looks for what it must not see
const PIPELINE_LIMIT_MS = 90_000

// A producer whose id is initialised, which kafkajs does with the first transaction only.
async function transactor(t, id = t.topic, transactionTimeout = LONG_MS) {
  const producer = await t.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1, transactionTimeout })
  await (await producer.transaction()).abort()
  return producer
}

// Records from first up to end, evenly over the partitions.
function records(first, end, partitions = PARTITIONS) {
  return Array.from({ length: end - first }, (_, i) => {
    const index = String(first + i).padStart(6, '0')
    return { partition: (first + i) % partitions, key: `key-${index}`, value: `value-${index}` }
  })
}

const values = (...ranges) => ranges.flatMap(([first, end]) => records(first, end)).map(({ value }) => value)

const send = (t, transaction, first, end) =>
  transaction.send({ topic: t.topic, messages: records(first, end), acks: -1 })

async function transact(t, producer, commit, first, end) {
  const transaction = await producer.transaction()
  await send(t, transaction, first, end)
  await (commit ? transaction.commit() : transaction.abort())
}

async function reader(t, partitions, committed) {
  const consumer = await t.consumer({ committed })
  for (let partition = 0; partition < partitions; partition++) {
    await consumer.assign(partition, { fromBeginning: true })
  }
  return consumer
}

// The values in front of records that are written now, without a transaction: whoever comes to them
// has seen all that is decided.
async function seen(t, partitions, committed) {
  const mark = `mark-${randomBytes(4).toString('hex')}`
  const marks = Array.from({ length: partitions }, (_, partition) => ({ partition, value: mark }))
  await t.send(await t.producer(), marks)
  const consumer = await reader(t, partitions, committed)
  const found = []
  let left = partitions
  for (const end = Date.now() + WAIT_LIMIT_MS; left > 0; ) {
    assert.ok(Date.now() < end, `${left} marks did not come (committed only: ${committed})`)
    for (const { value } of await consumer.poll()) {
      if (String(value) === mark) left--
      else if (!String(value).startsWith('mark-')) found.push(String(value))
    }
  }
  return found.sort()
}

function same(what, got, want) {
  const missing = want.filter(value => !got.includes(value))
  const more = got.filter(value => !want.includes(value))
  const reason = `${what}: ${got.length} of ${want.length}, missing ${missing.slice(0, 20)}, too much ${more.slice(0, 20)}`
  assert.deepEqual(got, [...want].sort(), reason)
}

async function check(t, committed, all) {
  same('committed', await seen(t, PARTITIONS, true), committed)
  same('all', await seen(t, PARTITIONS, false), all)
}

// All can be read, and nobody who wants what is committed gets it.
async function isHidden(t, hidden) {
  const all = await seen(t, PARTITIONS, false)
  assert.ok(hidden.every(value => all.includes(value)), 'not all records can be read')
  const consumer = await reader(t, PARTITIONS, true)
  for (const end = Date.now() + OPEN_FOR_MS; Date.now() < end; ) {
    for (const { value } of await consumer.poll()) {
      assert.ok(!hidden.includes(String(value)), `${value} of an open transaction was seen`)
    }
  }
}

async function commitAbort(t) {
  await t.create(PARTITIONS)
  const producer = await transactor(t)
  const first = await producer.transaction()
  await send(t, first, 0, 100)
  await isHidden(t, values([0, 100]))
  await first.commit()
  await check(t, values([0, 100]), values([0, 100]))
  await transact(t, producer, false, 100, 200)
  await check(t, values([0, 100]), values([0, 200]))
  const committed = [[0, 100]]
  for (let number = 0; number < 20; number++) {
    const range = [200 + 8 * number, 208 + 8 * number]
    const commit = number % 3 !== 2
    await transact(t, producer, commit, ...range)
    if (commit) committed.push(range)
  }
  await check(t, values(...committed), values([0, 360]))
  // Another's open transaction holds back what is committed behind it.
  const other = await (await transactor(t, `${t.topic}-other`)).transaction()
  await send(t, other, 360, 364)
  await transact(t, producer, true, 364, 368)
  await isHidden(t, values([360, 368]))
  await other.abort()
  await check(t, values(...committed, [364, 368]), values([0, 368]))
}

async function isFenced(what, promise) {
  const error = await promise.then(() => assert.fail(`${what}: no error`), e => e)
  const type = error.type ?? error.cause?.type
  assert.equal(type, 'INVALID_PRODUCER_EPOCH', `${what}: expected to be fenced, got ${error}`)
}

async function fencing(t) {
  await t.create(PARTITIONS)
  const zombie = await transactor(t)
  await transact(t, zombie, true, 0, 40)
  const open = await zombie.transaction()
  await send(t, open, 40, 80)
  const heir = await transactor(t)
  await check(t, values([0, 40]), values([0, 80]))
  await isFenced("a send of the zombie", send(t, open, 80, 120))
  await isFenced("the zombie's commit", open.commit())
  const next = await heir.transaction()
  await send(t, next, 120, 160)
  // It says here only that it is in no state for this.
  await assert.rejects(transact(t, zombie, true, 160, 200), "the zombie's new transaction")
  await next.commit()
  same('committed', await seen(t, PARTITIONS, true), values([0, 40], [120, 160]))
  const third = await transactor(t)
  await isFenced('the next transaction', transact(t, heir, true, 200, 240))
  await transact(t, third, true, 240, 280)
  same('committed', await seen(t, PARTITIONS, true), values([0, 40], [120, 160], [240, 280]))
}

async function timeout(t) {
  await t.create(PARTITIONS)
  const silent = await (await transactor(t, t.topic, SHORT_MS)).transaction()
  await send(t, silent, 0, 40)
  // The marks in it come only when what is in front of them is decided.
  await check(t, [], values([0, 40]))
  await isFenced('a commit of what was aborted', silent.commit())
  await transact(t, await transactor(t), true, 40, 80)
  await check(t, values([40, 80]), values([0, 80]))
}

// Copies a topic to another, in transactions with the offsets of what was read.
class Pipeline {
  rounds = 0
  aborts = 0

  constructor(t, eventually, count) {
    Object.assign(this, { t, eventually, count, source: t.topic, sink: `${t.topic}-out` })
  }

  async fill() {
    const { t } = this
    await t.create(PIPELINE_PARTITIONS)
    await t.send(await t.producer(), records(0, this.count, PIPELINE_PARTITIONS))
    t.topic = this.sink
    await t.create(PIPELINE_PARTITIONS)
    return this
  }

  // The sum of the group's offsets.
  async committed() {
    const [{ partitions }] = await this.eventually('committed offsets', () =>
      this.t.admin.fetchOffsets({ groupId: this.source, topics: [this.source] }))
    return partitions.reduce((sum, { offset }) => sum + Math.max(Number(offset), 0), 0)
  }

  // Goes on until so many are committed; before says of each round whether to commit it.
  async until(count, before) {
    const end = Date.now() + PIPELINE_LIMIT_MS
    while ((await this.committed()) < count) {
      assert.ok(Date.now() < end, 'the pipeline ends')
      // It waits for the end of what the one before it left, so that a member finds all that was
      // committed.
      const producer = await this.eventually('a producer', () => transactor(this.t, this.sink))
      await this.live(producer, count, before).catch(error => console.error('begins again after', error))
      await producer.disconnect()
    }
  }

  // Until so many are committed, or something fails; then both producer and consumer are done with.
  async live(producer, count, before) {
    const consumer = this.t.kafka.consumer({ groupId: this.source, heartbeatInterval: 500, sessionTimeout: 6_000,
      rebalanceTimeout: 10_000, maxWaitTimeInMs: 200, allowAutoTopicCreation: false })
    let done = await this.committed()
    let over = false
    try {
      await consumer.connect()
      await consumer.subscribe({ topics: [this.source], fromBeginning: true })
      await new Promise((resolve, reject) => {
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
        const eachBatch = async ({ batch, resolveOffset, heartbeat }) => {
          try {
            for (let at = 0; at < batch.messages.length && !over; at += CHUNK) {
              const chunk = batch.messages.slice(at, at + CHUNK)
              while (!(await this.transaction(producer, batch.partition, chunk, before))) this.aborts++
              resolveOffset(chunk.at(-1).offset)
              done += chunk.length
              if (done >= count) over = true
              await heartbeat()
            }
          } catch (error) {
            over = true
            reject(error)
          }
          if (over) resolve()
        }
        consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch }).catch(reject)
      })
    } finally {
      over = true
      await consumer.disconnect()
    }
  }

  // Whether it was committed.
  async transaction(producer, partition, chunk, before) {
    const transaction = await producer.transaction()
    const messages = chunk.map(({ key, value }) => ({ partition, key, value }))
    await transaction.send({ topic: this.sink, messages, acks: -1 })
    const offset = String(Number(chunk.at(-1).offset) + 1)
    const topics = [{ topic: this.source, partitions: [{ partition, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: this.source, topics })
    const commit = before(++this.rounds)
    await (commit ? transaction.commit() : transaction.abort())
    return commit
  }

  async check() {
    same('output', await seen(this.t, PIPELINE_PARTITIONS, true), values([0, this.count]))
    assert.equal(await this.committed(), this.count, 'committed')
  }
}

async function consumeTransform(t, eventually) {
  const pipeline = await new Pipeline(t, eventually, 600).fill()
  // The second life goes on where the first ended.
  for (const count of [300, 600]) await pipeline.until(count, round => round % 3 !== 1)
  await pipeline.check()
  assert.ok(pipeline.aborts >= 10, `${pipeline.aborts} rounds were aborted`)
  const written = (await seen(t, PIPELINE_PARTITIONS, false)).length
  assert.ok(written > 600, `aborted records are in the log: ${written}`)
}

async function brokerKill(t, eventually) {
  const pipeline = await new Pipeline(t, eventually, 600).fill()
  await pipeline.until(600, round => {
    // Here the transaction has its records and offsets.
    if (round === 30) console.log('kill broker')
    return round % 5 !== 4
  })
  await pipeline.check()
}

module.exports = { commitAbort, fencing, consumeTransform, timeout, brokerKill }
