// What the scenarios need of kafkajs: the codecs it lacks, consumers without a group (which its
// public consumer cannot do), and the few settings all scenarios share.
'use strict'

const { Kafka, CompressionTypes, CompressionCodecs, Partitioners, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const snappy = require('snappy')
const zlib = require('node:zlib')
const zstd = require('@bokuweb/zstd-wasm')
const Batch = require('kafkajs/src/consumer/batch')

const FETCH_WAIT_MS = 500
const FETCH_BYTES = 8 << 20

const codecTypes = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// Names of the codecs that fetched batches were decompressed with. kafkajs does not say how a batch
// was stored, so this is how a scenario sees that compression really took place.
const codecsSeen = new Set()

const zstdReady = zstd.init()

function installCodec(name, compress, decompress) {
  CompressionCodecs[codecTypes[name]] = () => ({
    compress: async encoder => Buffer.from(await compress(encoder.buffer)),
    decompress: async buffer => {
      codecsSeen.add(name)
      return Buffer.from(await decompress(buffer))
    },
  })
}

installCodec('gzip', data => zlib.gzipSync(data), data => zlib.gunzipSync(data))
installCodec('snappy', data => snappy.compress(data), uncompressSnappy)
installCodec('lz4', data => lz4.compressFrame(data), data => lz4.decompressFrame(data))
installCodec('zstd', async data => (await zstdReady, zstd.compress(data)),
  async data => (await zstdReady, zstd.decompress(data)))

// Java clients wrap snappy blocks in a stream of their own: an 8-byte magic, two 4-byte versions,
// then length-prefixed blocks. Everyone else, and this program, writes one bare block.
async function uncompressSnappy(data) {
  const magic = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00])
  if (!data.subarray(0, magic.length).equals(magic)) return snappy.uncompress(data)
  const blocks = []
  for (let at = 16; at < data.length; ) {
    const length = data.readInt32BE(at)
    blocks.push(await snappy.uncompress(data.subarray(at + 4, at + 4 + length)))
    at += 4 + length
  }
  return Buffer.concat(blocks)
}

function connect(bootstrap) {
  return new Kafka({
    clientId: 'corelane-node-kafkajs',
    brokers: bootstrap.split(','),
    logLevel: logLevel.NOTHING, // it logs to stdout, and every error that matters is thrown as well
    retry: { initialRetryTime: 100, retries: 8 },
  })
}

function producer(kafka, options) {
  return kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner, // every record names its partition anyhow
    allowAutoTopicCreation: false,
    ...options,
  })
}

// Consumer fetches from partitions assigned by hand. kafkajs consumes in groups only, so this goes
// through its internal cluster and broker objects: its connections, encoders and decoders, but this
// fetch loop.
class Consumer {
  fetches = 0
  #cluster
  #topic
  #isolationLevel
  #next = new Map() // partition -> offset

  constructor(kafka, topic, { committed = false } = {}) {
    this.#isolationLevel = committed ? 1 : 0
    const create = Object.getOwnPropertySymbols(kafka).find(
      symbol => symbol.description === 'private:Kafka:createCluster')
    this.#cluster = kafka[create]({ allowAutoTopicCreation: false, metadataMaxAge: 300_000 })
    this.#topic = topic
  }

  async connect() {
    await this.#cluster.connect()
    await this.#cluster.addTargetTopic(this.#topic)
  }

  disconnect() {
    return this.#cluster.disconnect()
  }

  // The offset of a start: a number, or { fromBeginning } or { fromTimestamp } as in ListOffsets.
  async assign(partition, start) {
    if (typeof start !== 'number') {
      const [found] = await this.#cluster.fetchTopicsOffset([
        { topic: this.#topic, partitions: [{ partition }], ...start }])
      start = Number(found.partitions[0].offset)
    }
    this.#next.set(partition, start)
    return start
  }

  // One fetch from every leader; the records, or an empty list after the longest wait.
  async poll() {
    const leaders = this.#cluster.findLeaderForPartitions(this.#topic, [...this.#next.keys()])
    const fetched = Object.entries(leaders).map(([nodeId, partitions]) => this.#fetch(nodeId, partitions))
    return (await Promise.all(fetched)).flat()
  }

  async #fetch(nodeId, partitions) {
    const broker = await this.#cluster.findBroker({ nodeId })
    this.fetches++
    const { responses } = await broker.fetch({
      maxWaitTime: FETCH_WAIT_MS,
      minBytes: 1,
      maxBytes: FETCH_BYTES,
      isolationLevel: this.#isolationLevel,
      topics: [{
        topic: this.#topic,
        partitions: partitions.map(partition => (
          { partition, fetchOffset: String(this.#next.get(partition)), maxBytes: FETCH_BYTES })),
      }],
    })
    return responses.flatMap(response => response.partitions.flatMap(fetched => {
      const { partition } = fetched
      // Knows what of it was aborted, and what are markers.
      const batch = new Batch(this.#topic, String(this.#next.get(partition)), fetched)
      const last = batch.messagesWithinOffset.at(-1)
      if (last) this.#next.set(partition, Number(last.offset) + 1)
      return batch.messages.map(message => ({ ...message, partition, offset: Number(message.offset) }))
    }))
  }
}

module.exports = { connect, producer, Consumer, codecTypes, codecsSeen }
