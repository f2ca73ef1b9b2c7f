// Consumer groups of ../README.md: kafkajs's own consumers, which join a group and nothing else. It
// speaks the classic protocol and shares partitions eagerly.
'use strict'

const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { once } = require('node:events')
const { createInterface } = require('node:readline')
const { setTimeout: sleep } = require('node:timers/promises')

const PARTITIONS = 4
const ROLLING_PARTITIONS = 8
// Of the records that are written while members come and go.
const BATCH = 2 * ROLLING_PARTITIONS
const WRITE_EVERY_MS = 50
// A member that says nothing for this long is given up: the least that brokers allow.
const SESSION_MS = 6_000

// A member hands on what it reads, commits it, and says which partitions it has. `hears` has the
// functions note(partition, message), has(partitions) and failed(error).
async function startMember(kafka, topic, hears) {
  const consumer = kafka.consumer({ groupId: topic, heartbeatInterval: 500, sessionTimeout: SESSION_MS,
    rebalanceTimeout: 10_000, maxWaitTimeInMs: 500, allowAutoTopicCreation: false })
  const { GROUP_JOIN, REBALANCING, CRASH } = consumer.events
  consumer.on(GROUP_JOIN, ({ payload }) => hears.has(payload.memberAssignment[topic] ?? []))
  consumer.on(REBALANCING, () => hears.has([]))
  consumer.on(CRASH, ({ payload }) => {
    if (!payload.restart) hears.failed(payload.error)
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      for (const message of batch.messages) hears.note(batch.partition, message)
      const offset = String(Number(batch.lastOffset()) + 1)
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset }])
    },
  })
  return consumer
}

class Member {
  partitions = []

  async start(group) {
    const { kafka, topic } = group.t
    this.consumer = await startMember(kafka, topic, {
      note: (partition, message) => group.note(partition, message),
      has: partitions => { this.partitions = partitions },
      failed: error => { group.failure = error },
    })
  }

  leave() {
    return this.consumer.disconnect()
  }
}

// A member as a process of its own, which is killed: it says on stdout what it reads, before it
// commits that, and what it has.
async function serve(kafka, topic) {
  const say = (...words) => process.stdout.write(`${words.join(' ')}\n`)
  await startMember(kafka, topic, {
    note: (partition, { offset, value }) => say('read', partition, offset, value),
    has: partitions => say('has', ...partitions),
    failed: error => { throw error },
  })
  await new Promise(() => {})
}

class Process {
  partitions = []

  start(group) {
    const { bootstrap, topic } = group.t
    this.child = spawn(process.execPath, [process.argv[1], '--bootstrap', bootstrap, '--member', topic],
      { stdio: ['ignore', 'pipe', 'inherit'] })
    const lines = createInterface({ input: this.child.stdout })
    this.ended = once(lines, 'close')
    lines.on('line', line => {
      const [word, ...rest] = line.split(' ')
      if (word === 'has') {
        this.partitions = rest.filter(Boolean).map(Number)
      } else if (rest.length === 3 && rest[2].length === VALUE_LENGTH) { // else cut off by the kill
        group.note(Number(rest[0]), { offset: rest[1], value: rest[2] })
      }
    })
    lines.on('close', () => {
      this.partitions = []
      if (!this.child.killed) group.failure = new Error("a member's process has ended")
    })
  }

  async leave() {
    this.child.kill('SIGKILL')
    await this.ended
  }
}

const valueOf = index => `value-${String(index).padStart(6, '0')}`
const VALUE_LENGTH = valueOf(0).length

class Group {
  members = []
  produced = 0

  constructor(t, eventually, partitions) {
    this.t = t
    this.partitions = partitions
    this.eventually = async (what, check) => eventually(what, async () => {
      if (this.last) await this.watch()
      if (this.failure) throw this.failure
      await check()
    })
    this.forget()
  }

  forget() {
    this.seen = Array.from({ length: this.partitions }, () => new Set())
  }

  note(partition, { offset, value }) {
    const expected = valueOf(Number(offset) * this.partitions + partition)
    if (String(value) !== expected) {
      this.failure = new Error(`${partition}:${offset} holds ${value}, expected ${expected}`)
    }
    this.seen[partition].add(Number(offset))
  }

  async join() {
    const member = new Member()
    this.members.push(member)
    await member.start(this)
    return member
  }

  spawn() {
    const member = new Process()
    this.members.push(member)
    member.start(this)
    return member
  }

  // Of a member that is a process: it is killed.
  async leave(member) {
    this.members = this.members.filter(other => other !== member)
    await member.leave()
  }

  // Whatever has happened, nobody stays.
  async end() {
    await Promise.allSettled(this.members.map(member => member.leave()))
  }

  async produce(count, producer) {
    const records = Array.from({ length: count }, (_, i) => {
      const index = this.produced + i
      return { partition: index % this.partitions, key: `key-${index}`, value: valueOf(index) }
    })
    await this.t.send(producer ?? await this.t.producer(), records)
    this.produced += count
  }

  // Writes all the time until what it returns is called.
  async writing() {
    const producer = await this.t.producer()
    let over = false
    const ended = (async () => {
      for (; !over; await sleep(WRITE_EVERY_MS)) await this.produce(BATCH, producer)
    })()
    ended.catch(error => { this.failure = error })
    return () => {
      over = true
      return ended
    }
  }

  // What is committed never goes back.
  async watch() {
    const now = (await this.committed()).map(Number)
    this.last.forEach((before, partition) => {
      if (now[partition] < before) {
        this.failure = new Error(`committed of ${partition} went from ${before} to ${now[partition]}`)
      }
    })
    this.last = now
  }

  settle(...shares) {
    return this.eventually(`shares ${shares}`, () => {
      assert.deepEqual(this.members.map(member => member.partitions.length).sort(), shares)
      assert.equal(new Set(this.members.flatMap(member => member.partitions)).size, this.partitions)
    })
  }

  async readAll() {
    const each = this.produced / this.partitions
    await this.eventually('all records', () => {
      assert.deepEqual(this.seen.map(offsets => offsets.size), Array(this.partitions).fill(each))
    })
    await this.eventually('all commits', async () => {
      assert.deepEqual(await this.committed(), Array(this.partitions).fill(String(each)))
    })
  }

  async committed() {
    const [{ partitions }] = await this.t.admin.fetchOffsets({ groupId: this.t.topic, topics: [this.t.topic] })
    return partitions.sort((a, b) => a.partition - b.partition).map(partition => partition.offset)
  }
}

async function within(t, eventually, body, partitions = PARTITIONS) {
  await t.create(partitions)
  const group = new Group(t, eventually, partitions)
  try {
    await body(group)
  } finally {
    await group.end()
  }
}

// Members come and go one after the other while records are written.
function classic(t, eventually) {
  return within(t, eventually, async group => {
    await group.produce(200)
    const first = await group.join()
    await group.settle(4)
    await group.readAll()

    const second = await group.join()
    await group.settle(2, 2)
    await group.produce(200)
    await group.readAll()

    const third = await group.join()
    await group.settle(1, 1, 2)
    await group.produce(200)
    await group.leave(second)
    await group.settle(2, 2)
    await group.readAll()

    await group.leave(first)
    await group.leave(third)
    group.forget()
    await group.produce(40)
    await group.join()
    await group.eventually('new records', () => {
      assert.ok(group.seen.every(offsets => offsets.size >= 10))
    })
    for (const offsets of group.seen) {
      assert.deepEqual([...offsets].sort((a, b) => a - b), Array.from({ length: 10 }, (_, i) => 150 + i))
    }
  })
}

// Members come, go and die, several at a time, while records are written all along.
function rolling(t, eventually) {
  return within(t, eventually, async group => {
    group.last = []
    const end = await group.writing()
    const [a, b, c] = [await group.join(), group.spawn(), await group.join()]
    await group.settle(2, 3, 3)
    await group.join()
    const e = group.spawn()
    await group.settle(1, 1, 2, 2, 2)
    await Promise.all([group.leave(b), group.leave(a)])
    await group.settle(2, 3, 3)
    // In the middle of the rebalance that the newcomer brings about.
    await group.join()
    await group.leave(e)
    await group.settle(2, 3, 3)
    await group.leave(c)
    await Promise.all([group.join(), group.join()])
    await group.settle(2, 2, 2, 2)
    await end()
    await group.readAll()
  }, ROLLING_PARTITIONS)
}

function admin(t, eventually) {
  return within(t, eventually, async group => {
    await group.produce(40)
    const member = await group.join()
    await group.settle(4)
    await group.readAll()
    const describe = async () => (await t.admin.describeGroups([t.topic])).groups[0]
    const listed = async () => (await t.admin.listGroups()).groups.some(({ groupId }) => groupId === t.topic)
    assert.ok(await listed(), 'listed')
    const described = await describe()
    assert.deepEqual([described.state, described.members.length], ['Stable', 1])
    await assert.rejects(t.admin.deleteGroups([t.topic]), 'deleting a group in use')
    await group.leave(member)
    assert.equal((await describe()).state, 'Empty')

    const partitions = [{ partition: 0, offset: '3' }]
    await t.admin.setOffsets({ groupId: t.topic, topic: t.topic, partitions })
    assert.deepEqual(await group.committed(), ['3', '10', '10', '10'])
    await t.admin.resetOffsets({ groupId: t.topic, topic: t.topic, earliest: true })
    await t.admin.deleteGroups([t.topic])
    assert.ok(!(await listed()), 'not listed')
  })
}

module.exports = { classic, rolling, admin, serve }
