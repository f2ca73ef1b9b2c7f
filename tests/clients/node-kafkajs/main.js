// node-kafkajs runs the client scenarios of ../README.md with kafkajs. Scenarios and runner are here;
// what kafkajs has to be helped with is in client.js.
'use strict'

const assert = require('node:assert/strict')
const { randomBytes } = require('node:crypto')
const { setTimeout: sleep } = require('node:timers/promises')
const { parseArgs } = require('node:util')
const { ConfigResourceTypes } = require('kafkajs')
const { connect, producer, Consumer, codecTypes, codecsSeen } = require('./client')
const groups = require('./groups')
const txns = require('./txns')

const SCENARIO_LIMIT_MS = 100_000
const READ_BACK_LIMIT_MS = 30_000
const STATE_LIMIT_MS = 45_000 // a loaded Kafka takes its time over 1,000 partitions
const POLL_EVERY_MS = 50
const PARTITIONS = 4
const SAMPLE = 50
const DEFAULT_CONFIG = 5 // the broker's code for "nobody set this"

const scenarios = {
  'create-topic': createTopic,
  'produce-sync': produceSync,
  'produce-async': produceAsync,
  'codec-none': t => codec(t, 'none'),
  'codec-gzip': t => codec(t, 'gzip'),
  'codec-snappy': t => codec(t, 'snappy'),
  'codec-lz4': t => codec(t, 'lz4'),
  'codec-zstd': t => codec(t, 'zstd'),
  'acks-0': t => acks(t, 0),
  'acks-1': t => acks(t, 1),
  'acks-all': t => acks(t, -1),
  idempotent,
  'large-record': largeRecord,
  'oversize-record': oversizeRecord,
  'empty-and-null': emptyAndNull,
  headers,
  'many-partitions': manyPartitions,
  'consume-earliest': consumeEarliest,
  'consume-latest': consumeLatest,
  'consume-timestamp': consumeTimestamp,
  'consume-offset': consumeOffset,
  'long-poll': longPoll,
  'delete-recreate': deleteRecreate,
  'unknown-topic': unknownTopic,
  admin,
  'group-classic': t => groups.classic(t, eventually),
  'group-rolling': t => groups.rolling(t, eventually),
  'group-admin': t => groups.admin(t, eventually),
  'txn-commit-abort': txns.commitAbort,
  'txn-fencing': txns.fencing,
  'txn-consume-transform': t => txns.consumeTransform(t, eventually),
  'txn-timeout': txns.timeout,
  'txn-broker-kill': t => txns.brokerKill(t, eventually),
}

async function createTopic(t) {
  const entry = { name: 'retention.ms', value: '3600000' }
  await t.create(PARTITIONS, [entry])
  assert.deepEqual(await t.config('retention.ms'), { value: '3600000', isDefault: false })
  assert.equal(await t.tryCreate(), false, 'creating it again is answered with "already exists"')
}

async function produceSync(t) {
  await t.create()
  const records = numbered(100)
  const producer = await t.producer()
  for (const record of records) await t.send(producer, [record])
  t.expectOffsets(records)
  await t.verify(records)
}

async function produceAsync(t) {
  await t.create()
  const records = numbered(10_000, PARTITIONS)
  for (const record of records) record.value = record.value.padEnd(100, '.')
  const producer = await t.producer()
  // Every send is a request; records go fifty to a request, as an application would batch them.
  await Promise.all(chunks(records, 50).map(chunk => t.send(producer, chunk)))
  await t.verify(records)
}

async function codec(t, name) {
  await t.create()
  const records = numbered(1_000)
  for (const record of records) record.value += 'corelane '.repeat(21)
  await t.send(await t.producer(), records, { compression: codecTypes[name] })
  t.expectOffsets(records)
  codecsSeen.clear()
  await t.verify(records)
  assert.deepEqual([...codecsSeen], name === 'none' ? [] : [name], 'codecs of the stored batches')
}

async function acks(t, level) {
  await t.create()
  const records = numbered(100)
  await t.send(await t.producer(), records, { acks: level })
  if (level === 0) records.forEach((record, i) => { record.offset = i }) // no answer tells them
  t.expectOffsets(records)
  await t.verify(records)
}

async function idempotent(t) {
  await t.create()
  const records = numbered(1_000)
  const producer = await t.producer({ idempotent: true })
  // kafkajs keeps no order among sends that are not awaited: verify goes by acknowledged offsets.
  await Promise.all(chunks(records, 10).map(chunk => t.send(producer, chunk)))
  const got = await t.verify(records)
  assert.ok(Number(got[0].batchContext.producerId) >= 0, 'batches carry a producer id')
}

async function largeRecord(t) {
  await t.create()
  const records = numbered(3)
  for (const record of records) record.value = randomBytes(900 << 10)
  const producer = await t.producer()
  for (const record of records) await t.send(producer, [record]) // together they would be one batch
  await t.verify(records)
}

async function oversizeRecord(t) {
  await t.create(PARTITIONS, [{ name: 'max.message.bytes', value: '10000' }])
  const [large, small] = numbered(2)
  large.value = randomBytes(20_000)
  const producer = await t.producer()
  await expectError('MESSAGE_TOO_LARGE', t.send(producer, [large]))
  await t.send(producer, [small])
  assert.equal(small.offset, 0)
  await t.verify([small])
}

async function emptyAndNull(t) {
  await t.create()
  const empty = Buffer.alloc(0)
  const records = [[null, 'v'], [empty, 'v'], ['k', null], ['k', empty], [null, null], [empty, empty]].map(
    ([key, value]) => ({ partition: 0, key, value }))
  await t.send(await t.producer(), records)
  await t.verify(records)
}

// kafkajs keeps headers in an object: values of one name stay in order, but stand together.
async function headers(t) {
  await t.create()
  const records = numbered(3)
  records[0].headers = {}
  records[1].headers = {
    a: ['1', '2'], b: '', bin: Buffer.from([0x00, 0xff, 0x80, 0x7f]) }
  records[2].headers = { 'clé': 'valeur' }
  await t.send(await t.producer(), records)
  await t.verify(records)
}

async function manyPartitions(t) {
  const count = 1_000
  await t.create(count)
  const records = numbered(SAMPLE, SAMPLE)
  for (const record of records) record.partition *= count / SAMPLE
  await t.send(await t.producer(), records)
  for (const record of records) assert.equal(record.offset, 0)
  await t.verify(records)
  await t.admin.deleteTopics({ topics: [t.topic] })
}

async function consumeEarliest(t) {
  await t.create()
  const records = numbered(100)
  await t.send(await t.producer(), records)
  await t.verify(records)
}

async function consumeLatest(t) {
  await t.create()
  const producer = await t.producer()
  await t.send(producer, numbered(50))
  const consumer = await t.consumer()
  assert.equal(await consumer.assign(0, { fromBeginning: false }), 50)
  const later = numbered(60).slice(50)
  await t.send(producer, later)
  same(await t.take(consumer, 10), later, 50)
}

async function consumeTimestamp(t) {
  await t.create()
  const records = numbered(100)
  const base = Date.now() - 3_600_000
  records.forEach((record, i) => { record.timestamp = String(base + i * 1_000) })
  await t.send(await t.producer(), records)
  for (const [after, want] of [[49_500, 50], [50_000, 50], [-1, 0]]) {
    const found = await t.admin.fetchTopicOffsetsByTimestamp(t.topic, base + after)
    assert.equal(Number(found.find(p => p.partition === 0).offset), want, `offset ${after} ms after the first`)
  }
  const consumer = await t.consumer()
  assert.equal(await consumer.assign(0, { fromTimestamp: base + 99_001 }), -1, 'no record is that young')
  await consumer.assign(0, { fromTimestamp: base + 49_500 })
  same(await t.take(consumer, 50), records.slice(50), 50)
}

async function consumeOffset(t) {
  await t.create()
  const records = numbered(100)
  await t.send(await t.producer(), records)
  const consumer = await t.consumer()
  for (const first of [37, 5]) {
    await consumer.assign(0, first)
    same(await t.take(consumer, 100 - first), records.slice(first), first)
  }
  await consumer.assign(0, 1_000)
  await expectError('OFFSET_OUT_OF_RANGE', consumer.poll())
}

// An idle consumer that waits 500 ms a fetch needs about 6 in 3 s; with a broker that does not wait
// it would send thousands.
async function longPoll(t) {
  await t.create(1)
  const consumer = await t.consumer()
  await consumer.assign(0, { fromBeginning: true })
  for (const end = Date.now() + 3_000; Date.now() < end; ) {
    assert.deepEqual(await consumer.poll(), [], 'the topic is empty')
  }
  assert.ok(consumer.fetches <= 60, `${consumer.fetches} fetches in 3 s of idling`)
  const records = numbered(1)
  const woken = t.take(consumer, 1, 10_000)
  await t.send(await t.producer(), records)
  same(await woken, records, 0)
}

async function deleteRecreate(t) {
  await t.create()
  await t.send(await t.producer(), numbered(10))
  await t.admin.deleteTopics({ topics: [t.topic] })
  await eventually('topic is gone', async () =>
    assert.ok(!(await t.admin.listTopics()).includes(t.topic), 'still listed'))
  await t.reconnectAdmin() // kafkajs keeps asking for a topic it was told of once
  await eventually('create it again', async () => assert.ok(await t.tryCreate(), 'the topic exists'))
  await t.awaitTopic(PARTITIONS)
  for (const { low, high } of await t.admin.fetchTopicOffsets(t.topic)) {
    assert.deepEqual([low, high], ['0', '0'], 'offsets of the new topic')
  }
  const records = numbered(1)
  records[0].value = 'new'
  await t.send(await t.producer(), records)
  assert.equal(records[0].offset, 0)
  await t.verify(records)
}

async function unknownTopic(t) {
  const code = 'UNKNOWN_TOPIC_OR_PARTITION'
  await expectError(code, t.admin.fetchTopicMetadata({ topics: [t.topic] }))
  const producer = await t.producer({ retry: { retries: 2 } })
  await expectError(code, t.send(producer, numbered(1)))
  await expectError(code, t.consumer())
  assert.ok(!(await t.admin.listTopics()).includes(t.topic), 'asking for the topic created it')
}

async function admin(t) {
  const cluster = await t.admin.describeCluster()
  assert.ok(cluster.clusterId, 'the cluster has an id')
  assert.ok(cluster.brokers.some(b => b.nodeId === cluster.controller), 'the controller is a node')
  await t.create()
  assert.ok((await t.admin.listTopics()).includes(t.topic), 'the topic is listed')

  assert.deepEqual(await t.config('max.message.bytes'), { value: '1048588', isDefault: true })
  await t.alterConfigs([{ name: 'retention.ms', value: '123456789' }])
  await eventually('altered config', async () =>
    assert.deepEqual(await t.config('retention.ms'), { value: '123456789', isDefault: false }))
  await t.alterConfigs([]) // the older call replaces everything, so this takes it away
  await eventually('reset config', async () =>
    assert.deepEqual(await t.config('retention.ms'), { value: '604800000', isDefault: true }))

  await t.admin.createPartitions({ topicPartitions: [{ topic: t.topic, count: 6 }] })
  await t.awaitTopic(6)

  const records = numbered(10)
  await t.send(await t.producer(), records)
  await t.admin.deleteTopicRecords({ topic: t.topic, partitions: [{ partition: 0, offset: '4' }] })
  await t.expectSpan(0, 4, 10)
  const consumer = await t.consumer()
  await consumer.assign(0, { fromBeginning: true })
  same(await t.take(consumer, 6), records.slice(4), 4)
}

// Distinct records spread over the first partitions in turn.
function numbered(count, partitions = 1) {
  return Array.from({ length: count }, (_, i) => {
    const index = String(i).padStart(6, '0')
    return { partition: i % partitions, key: `key-${index}`, value: `value-${index}`, headers: { index } }
  })
}

function chunks(list, size) {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, i) => list.slice(i * size, (i + 1) * size))
}

function groupBy(records, key) {
  const groups = new Map()
  for (const record of records) groups.set(record[key], [...(groups.get(record[key]) ?? []), record])
  return groups
}

const bytes = value => (value == null ? null : Buffer.from(value))

function headerList(headers = {}) {
  return Object.entries(headers).flatMap(([key, values]) =>
    [values].flat().map(value => [key, bytes(value)]))
}

// Compares records of one partition in order; the first has the given offset.
function same(got, want, firstOffset) {
  assert.equal(got.length, want.length, 'number of records')
  got.forEach((g, i) => {
    const w = want[i]
    const at = `record ${i} of partition ${w.partition}`
    assert.equal(g.offset, firstOffset + i, `${at}: offset`)
    assert.deepEqual(g.key, bytes(w.key), `${at}: key`)
    assert.deepEqual(g.value, bytes(w.value), `${at}: value`)
    assert.deepEqual(headerList(g.headers), headerList(w.headers), `${at}: headers`)
    if (w.timestamp) assert.equal(g.timestamp, w.timestamp, `${at}: timestamp`)
  })
}

async function expectError(type, promise) {
  const error = await promise.then(() => assert.fail(`no error, expected ${type}`), e => e)
  const found = error.type ?? error.cause?.type
  if (found !== type) throw new Error(`expected error ${type}, got: ${error}`, { cause: error })
}

// Tries until check is content, and fails with its last complaint.
async function eventually(what, check) {
  for (const end = Date.now() + STATE_LIMIT_MS; ; await sleep(POLL_EVERY_MS)) {
    try {
      return await check()
    } catch (e) {
      if (Date.now() > end) throw new Error(`${what}: ${e.message}`, { cause: e })
    }
  }
}

// One scenario under way: its topic, its clients, the shared steps.
class Run {
  #open = []

  constructor(bootstrap, scenario) {
    this.bootstrap = bootstrap
    this.kafka = connect(bootstrap)
    this.topic = `${scenario}-node-kafkajs-${randomBytes(4).toString('hex')}`
  }

  async #connected(client) {
    this.#open.push(client)
    await client.connect()
    return client
  }

  async reconnectAdmin() {
    this.admin = await this.#connected(this.kafka.admin())
  }

  async close() {
    await Promise.allSettled(this.#open.map(client => client.disconnect()))
  }

  producer(options) {
    return this.#connected(producer(this.kafka, options))
  }

  consumer(options) {
    return this.#connected(new Consumer(this.kafka, this.topic, options))
  }

  // False if the topic exists already. Does not let kafkajs wait for leaders: that wait gives up when
  // metadata does not yet know the topic.
  tryCreate(numPartitions = PARTITIONS, configEntries = []) {
    const topic = { topic: this.topic, numPartitions, replicationFactor: 1, configEntries }
    return this.admin.createTopics({ topics: [topic], waitForLeaders: false })
  }

  async create(numPartitions = PARTITIONS, configEntries = []) {
    assert.ok(await this.tryCreate(numPartitions, configEntries), 'the topic is new')
    await this.awaitTopic(numPartitions)
  }

  // Until every partition has a leader and all of them serve. A broker may list them a little earlier.
  async awaitTopic(count) {
    await eventually('describe topic', async () => {
      const { topics } = await this.admin.fetchTopicMetadata({ topics: [this.topic] })
      const partitions = topics[0].partitions
      const ids = partitions.map(p => p.partitionId).sort((a, b) => a - b)
      assert.deepEqual(ids, Array.from({ length: count }, (_, i) => i))
      assert.ok(partitions.every(p => p.leader >= 0 && p.replicas.length > 0 && p.isr.length > 0),
        'every partition has leader, replicas and ISR')
    })
    await eventually('list offsets', () => this.admin.fetchTopicOffsets(this.topic))
  }

  // Sends one request a leader and notes the offset of each record.
  async send(producer, records, options = {}) {
    const answers = await producer.send({ topic: this.topic, messages: records, acks: -1, ...options })
    const byPartition = groupBy(records, 'partition')
    for (const { partition, baseOffset } of answers) {
      byPartition.get(partition).forEach((record, i) => { record.offset = Number(baseOffset) + i })
    }
  }

  // Records of one partition were acknowledged from offset 0 on, in the order they were handed over.
  expectOffsets(records) {
    records.forEach((record, i) => assert.equal(record.offset, i, 'acknowledged offset'))
  }

  async take(consumer, count, limit_ms = READ_BACK_LIMIT_MS) {
    const got = []
    for (const end = Date.now() + limit_ms; got.length < count; ) {
      assert.ok(Date.now() < end, `${got.length} of ${count} records came`)
      got.push(...(await consumer.poll()))
    }
    assert.equal(got.length, count, 'number of records')
    return got
  }

  // Reads the partitions of these records from the start; each must be where it was acknowledged.
  async verify(records) {
    const consumer = await this.consumer()
    const sent = groupBy(records, 'partition')
    for (const partition of sent.keys()) await consumer.assign(partition, { fromBeginning: true })
    const got = await this.take(consumer, records.length)
    const received = groupBy(got, 'partition')
    for (const [partition, want] of sent) {
      want.sort((a, b) => a.offset - b.offset)
      same(received.get(partition) ?? [], want, 0)
    }
    const spans = await this.admin.fetchTopicOffsets(this.topic)
    for (const [partition, want] of sent) {
      const { low, high } = spans.find(p => p.partition === partition)
      assert.deepEqual([low, high], ['0', String(want.length)], `first and end offset of ${partition}`)
    }
    return got
  }

  async expectSpan(partition, first, end) {
    const spans = await this.admin.fetchTopicOffsets(this.topic)
    const { low, high } = spans.find(p => p.partition === partition)
    assert.deepEqual([Number(low), Number(high)], [first, end], `first and end offset of ${partition}`)
  }

  async config(name) {
    const { resources: [{ configEntries: [entry] }] } = await this.admin.describeConfigs({
      resources: [{ type: ConfigResourceTypes.TOPIC, name: this.topic, configNames: [name] }],
    })
    assert.equal(entry.configName, name)
    return { value: entry.configValue, isDefault: entry.configSource === DEFAULT_CONFIG }
  }

  alterConfigs(configEntries) {
    return this.admin.alterConfigs({
      resources: [{ type: ConfigResourceTypes.TOPIC, name: this.topic, configEntries }],
    })
  }
}

async function runOne(bootstrap, name) {
  const run = new Run(bootstrap, name)
  const began = Date.now()
  const body = (async () => {
    await run.reconnectAdmin()
    await scenarios[name](run)
  })()
  const limit = new AbortController()
  const late = sleep(SCENARIO_LIMIT_MS, null, { signal: limit.signal }).then(() => {
    throw new Error(`no end after ${SCENARIO_LIMIT_MS / 1000} s`)
  })
  late.catch(() => {}) // the abort below is no failure
  try {
    await Promise.race([body, late])
    console.log(`ok ${name}`)
    return true
  } catch (e) {
    console.error(e)
    console.log(`not ok ${name}: ${String(e.message).replaceAll(/\s+/g, ' ')}`)
    return false
  } finally {
    limit.abort()
    await Promise.race([run.close(), sleep(5_000, null, { ref: false })])
    console.error(`node-kafkajs: ${name} took ${Date.now() - began} ms`)
  }
}

async function main() {
  let options
  try {
    options = parseArgs({ options: {
      bootstrap: { type: 'string' },
      only: { type: 'string' },
      list: { type: 'boolean' },
      member: { type: 'string' }, // for the program's own use: the topic of a member to be killed
      'data-dir': { type: 'string' }, // no scenario here reads the broker's files
    } }).values
  } catch (e) {
    console.error(`node-kafkajs: ${e.message}`)
    return 2
  }
  if (options.list) {
    console.log(Object.keys(scenarios).join('\n'))
    return 0
  }
  if (!options.bootstrap || (options.only && !scenarios[options.only])) {
    console.error('node-kafkajs: --bootstrap HOST:PORT is required, and --only must name a scenario')
    return 2
  }
  if (options.member) return groups.serve(connect(options.bootstrap), options.member)
  let failed = 0
  for (const name of options.only ? [options.only] : Object.keys(scenarios)) {
    if (!(await runOne(options.bootstrap, name))) failed++
  }
  return failed > 0 ? 1 : 0
}

process.on('unhandledRejection', e => console.error('unhandled rejection:', e))
main().then(code => process.exit(code))
