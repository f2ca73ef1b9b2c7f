// Consumer groups of ../README.md: kafkajs's own consumers, which join a group and nothing else. It
// speaks the classic protocol and shares partitions eagerly.
'use strict'

const assert = require('node:assert/strict')

const PARTITIONS = 4

// A member notes what it reads, commits it, and says which partitions it has.
class Member {
  partitions = []

  async start(group) {
    const { kafka, topic } = group.t
    this.consumer = kafka.consumer({ groupId: topic, heartbeatInterval: 500, sessionTimeout: 10_000,
      rebalanceTimeout: 10_000, maxWaitTimeInMs: 500, allowAutoTopicCreation: false })
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(GROUP_JOIN, ({ payload }) => { this.partitions = payload.memberAssignment[topic] ?? [] })
    this.consumer.on(REBALANCING, () => { this.partitions = [] })
    this.consumer.on(CRASH, ({ payload }) => {
      if (!payload.restart) group.failure = payload.error
    })
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        for (const message of batch.messages) group.note(batch.partition, message)
        const offset = String(Number(batch.lastOffset()) + 1)
        await this.consumer.commitOffsets([{ topic, partition: batch.partition, offset }])
      },
    })
  }
}

class Group {
  members = []
  produced = 0

  constructor(t, eventually) {
    this.t = t
    this.eventually = async (what, check) => eventually(what, async () => {
      if (this.failure) throw this.failure
      await check()
    })
    this.forget()
  }

  forget() {
    this.seen = Array.from({ length: PARTITIONS }, () => new Set())
  }

  note(partition, { offset, value }) {
    const expected = `value-${String(Number(offset) * PARTITIONS + partition).padStart(6, '0')}`
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

  async leave(member) {
    this.members = this.members.filter(other => other !== member)
    await member.consumer.disconnect()
  }

  // Whatever has happened, nobody stays.
  async end() {
    await Promise.allSettled(this.members.map(member => member.consumer.disconnect()))
  }

  async produce(count) {
    const records = Array.from({ length: count }, (_, i) => {
      const index = this.produced + i
      return { partition: index % PARTITIONS, key: `key-${index}`, value: `value-${String(index).padStart(6, '0')}` }
    })
    await this.t.send(await this.t.producer(), records)
    this.produced += count
  }

  settle(...shares) {
    return this.eventually(`shares ${shares}`, () => {
      assert.deepEqual(this.members.map(member => member.partitions.length).sort(), shares)
      assert.equal(new Set(this.members.flatMap(member => member.partitions)).size, PARTITIONS)
    })
  }

  async readAll() {
    const each = this.produced / PARTITIONS
    await this.eventually('all records', () => {
      assert.deepEqual(this.seen.map(offsets => offsets.size), Array(PARTITIONS).fill(each))
    })
    await this.eventually('all commits', async () => {
      assert.deepEqual(await this.committed(), Array(PARTITIONS).fill(String(each)))
    })
  }

  async committed() {
    const [{ partitions }] = await this.t.admin.fetchOffsets({ groupId: this.t.topic, topics: [this.t.topic] })
    return partitions.sort((a, b) => a.partition - b.partition).map(partition => partition.offset)
  }
}

async function within(t, eventually, body) {
  await t.create(PARTITIONS)
  const group = new Group(t, eventually)
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

module.exports = { classic, admin }
