// go-sarama runs the client scenarios with IBM sarama, speaking the newest versions it knows. It owns
// the mapping from suite.Driver to sarama; the scenarios live in ../go-suite.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"corelane/clients/suite"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
)

func main() {
	suite.Main("go-sarama", []string{suite.Classic}, open)
}

type driver struct {
	bootstrap []string
	client    sarama.Client
	admin     sarama.ClusterAdmin // speaks through client and closes it
	producers []sarama.AsyncProducer
}

func open(bootstrap []string) (suite.Driver, error) {
	client, err := sarama.NewClient(bootstrap, settings())
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	return &driver{bootstrap: bootstrap, client: client, admin: admin}, err
}

func (d *driver) Close() {
	for _, p := range d.producers {
		p.AsyncClose()
	}
	d.admin.Close()
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.AllowAutoTopicCreation = false
	return config
}

// Code relies on sarama wrapping the broker's code, a KError, in all of its richer errors.
func (d *driver) Code(err error) int16 {
	if code, ok := errors.AsType[sarama.KError](err); ok {
		return int16(code)
	}
	return -1
}

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func producerSettings(o suite.ProducerOptions) *sarama.Config {
	config := settings()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.RequiredAcks(o.Acks)
	config.Producer.Compression = codecs[o.Codec]
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1 // more could reorder on a retry; idempotence asks for it too
	config.Producer.Idempotent = o.Idempotent
	if !o.OneByOne {
		config.Producer.Flush.Frequency = 20 * time.Millisecond
	}
	if o.SmallBatch {
		config.Producer.Flush.MaxMessages = 20
	}
	return config
}

func (d *driver) Produce(_ context.Context, topic string, o suite.ProducerOptions,
	records []*suite.Record) []error {
	outcomes := make([]error, len(records))
	producer, err := sarama.NewAsyncProducer(d.bootstrap, producerSettings(o))
	if err != nil {
		for i := range outcomes {
			outcomes[i] = err
		}
		return outcomes
	}
	d.producers = append(d.producers, producer)
	collect := func() {
		select {
		case done := <-producer.Successes():
			records[done.Metadata.(int)].Offset = done.Offset
		case failed := <-producer.Errors():
			outcomes[failed.Msg.Metadata.(int)] = failed.Err
		}
	}
	if o.OneByOne {
		for i, record := range records {
			producer.Input() <- message(topic, i, record)
			collect()
		}
		return outcomes
	}
	go func() {
		for i, record := range records {
			producer.Input() <- message(topic, i, record)
		}
	}()
	for range records {
		collect()
	}
	return outcomes
}

func message(topic string, index int, record *suite.Record) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Topic: topic, Partition: record.Partition, Timestamp: record.Timestamp,
		Metadata: index}
	if record.Key != nil {
		m.Key = sarama.ByteEncoder(record.Key)
	}
	if record.Value != nil {
		m.Value = sarama.ByteEncoder(record.Value)
	}
	for _, h := range record.Headers {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return m
}

// consumer merges one sarama partition consumer for each assigned partition.
type consumer struct {
	topic      string
	client     sarama.Client
	consumer   sarama.Consumer
	partitions map[int32]*assigned
	records    chan *suite.Record
	failures   chan error
}

type assigned struct {
	sarama.PartitionConsumer
	dropped chan struct{}
}

func (d *driver) Consume(ctx context.Context, topic string, starts map[int32]suite.Start) (suite.Consumer, error) {
	return d.consume(ctx, topic, starts, sarama.ReadUncommitted)
}

func (d *driver) consume(ctx context.Context, topic string, starts map[int32]suite.Start,
	isolation sarama.IsolationLevel) (suite.Consumer, error) {
	config := settings()
	config.Consumer.IsolationLevel = isolation
	config.Consumer.MaxWaitTime = suite.FetchWait
	config.Consumer.Return.Errors = true
	client, err := sarama.NewClient(d.bootstrap, config)
	if err != nil {
		return nil, err
	}
	c := &consumer{topic: topic, client: client, partitions: make(map[int32]*assigned),
		records: make(chan *suite.Record), failures: make(chan error, 1)}
	c.consumer, err = sarama.NewConsumerFromClient(client)
	for partition, start := range starts {
		if err == nil {
			err = c.assign(ctx, partition, start)
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *consumer) assign(ctx context.Context, partition int32, start suite.Start) error {
	var offset int64
	var err error
	switch start.Kind {
	case suite.FromEarliest:
		offset = sarama.OffsetOldest
	case suite.FromLatest:
		offset = sarama.OffsetNewest
	case suite.FromOffset:
		offset = start.Offset
	case suite.FromTime:
		offset, err = c.client.GetOffset(c.topic, partition, start.Time.UnixMilli())
	}
	if err != nil {
		return err
	}
	inner, err := c.consumer.ConsumePartition(c.topic, partition, offset)
	if err != nil {
		return err
	}
	a := &assigned{inner, make(chan struct{})}
	c.partitions[partition] = a
	go c.forward(ctx, a)
	return nil
}

func (c *consumer) forward(ctx context.Context, a *assigned) {
	for {
		select {
		case m, open := <-a.Messages():
			if !open {
				return
			}
			select {
			case c.records <- received(m):
			case <-a.dropped:
				return
			}
		case failure := <-a.Errors():
			if failure != nil {
				select {
				case c.failures <- failure:
				default: // one is enough to report
				}
			}
		case <-a.dropped:
			return
		case <-ctx.Done():
			return
		}
	}
}

func received(m *sarama.ConsumerMessage) *suite.Record {
	record := &suite.Record{Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp,
		Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		record.Headers = append(record.Headers, suite.Header{Key: string(h.Key), Value: h.Value})
	}
	return record
}

func (c *consumer) Next(ctx context.Context) ([]*suite.Record, error) {
	select {
	case record := <-c.records:
		return []*suite.Record{record}, nil
	case err := <-c.failures:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Seek drops the partition and assigns it anew: sarama has no other way.
func (c *consumer) Seek(ctx context.Context, partition int32, offset int64) error {
	if err := c.drop(partition); err != nil {
		return err
	}
	return c.assign(ctx, partition, suite.Start{Kind: suite.FromOffset, Offset: offset})
}

func (c *consumer) drop(partition int32) error {
	a := c.partitions[partition]
	delete(c.partitions, partition)
	close(a.dropped)
	return a.Close()
}

func (c *consumer) Fetches() int64 {
	return metrics.GetOrRegisterMeter("consumer-fetch-rate", c.client.Config().MetricRegistry).Count()
}

func (c *consumer) Close() {
	for _, a := range c.partitions {
		a.AsyncClose() // all first, so that they wait out their last fetch together
	}
	for partition := range c.partitions {
		c.drop(partition)
	}
	if c.consumer != nil {
		c.consumer.Close()
	}
	c.client.Close()
}

// StoredBatch fetches by hand: sarama's consumer does not show batches.
func (d *driver) StoredBatch(_ context.Context, topic string, partition int32) (suite.Batch, error) {
	leader, err := d.client.Leader(topic, partition)
	if err != nil {
		return suite.Batch{}, err
	}
	const lastVersionWithTopicNames, enough, noEpoch = 12, 1 << 20, -1
	request := &sarama.FetchRequest{Version: lastVersionWithTopicNames, MinBytes: 1, MaxBytes: enough,
		MaxWaitTime: int32(suite.FetchWait.Milliseconds()), SessionEpoch: noEpoch}
	request.AddBlock(topic, partition, 0, enough, noEpoch)
	answer, err := leader.Fetch(request)
	if err != nil {
		return suite.Batch{}, err
	}
	block := answer.GetBlock(topic, partition)
	if block == nil || len(block.RecordsSet) == 0 || block.RecordsSet[0].RecordBatch == nil {
		return suite.Batch{}, fmt.Errorf("fetch of %s/%d gave no batch", topic, partition)
	}
	batch := block.RecordsSet[0].RecordBatch
	return suite.Batch{Codec: batch.Codec.String(), ProducerID: batch.ProducerID}, nil
}

func (d *driver) CreateTopic(_ context.Context, topic string, partitions int32,
	configs map[string]string) error {
	const brokerDefault = -1
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: brokerDefault,
		ConfigEntries: make(map[string]*string)}
	for key, value := range configs {
		detail.ConfigEntries[key] = &value
	}
	return d.admin.CreateTopic(topic, detail, false)
}

func (d *driver) DeleteTopic(_ context.Context, topic string) error {
	return d.admin.DeleteTopic(topic)
}

func (d *driver) ListTopics(context.Context) ([]string, error) {
	topics, err := d.admin.ListTopics()
	var names []string
	for name := range topics {
		names = append(names, name)
	}
	return names, err
}

func (d *driver) DescribeTopic(_ context.Context, topic string) ([]suite.Partition, error) {
	topics, err := d.admin.DescribeTopics([]string{topic})
	if err != nil {
		return nil, err
	}
	if len(topics) != 1 || topics[0].Name != topic {
		return nil, fmt.Errorf("asked for %s, described %d topics", topic, len(topics))
	}
	if topics[0].Err != sarama.ErrNoError {
		return nil, topics[0].Err
	}
	var partitions []suite.Partition
	for _, p := range topics[0].Partitions {
		if p.Err != sarama.ErrNoError {
			return nil, p.Err
		}
		partitions = append(partitions, suite.Partition{ID: p.ID, Leader: p.Leader, Replicas: p.Replicas, ISR: p.Isr})
	}
	return partitions, nil
}

func (d *driver) Offsets(_ context.Context, topic string, partition int32) (int64, int64, error) {
	earliest, err := d.client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return 0, 0, err
	}
	latest, err := d.client.GetOffset(topic, partition, sarama.OffsetNewest)
	return earliest, latest, err
}

// OffsetAfter needs no translation: sarama too says -1 for "none".
func (d *driver) OffsetAfter(_ context.Context, topic string, partition int32, at time.Time) (int64, error) {
	return d.client.GetOffset(topic, partition, at.UnixMilli())
}

// DescribeCluster asks a broker directly, because ClusterAdmin hides the cluster id.
func (d *driver) DescribeCluster(context.Context) (suite.Cluster, error) {
	broker, err := d.client.Controller()
	if err != nil {
		return suite.Cluster{}, err
	}
	answer, err := broker.DescribeCluster(sarama.NewDescribeClusterRequest(sarama.MaxVersion))
	if err != nil {
		return suite.Cluster{}, err
	}
	if answer.Err != sarama.ErrNoError {
		return suite.Cluster{}, answer.Err
	}
	cluster := suite.Cluster{ID: answer.ClusterID, Controller: answer.ControllerID}
	for _, b := range answer.Brokers {
		cluster.Brokers = append(cluster.Brokers, b.BrokerID)
	}
	return cluster, nil
}

func (d *driver) DescribeConfig(_ context.Context, topic, key string) (suite.Config, error) {
	entries, err := d.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic,
		ConfigNames: []string{key}})
	if err != nil {
		return suite.Config{}, err
	}
	if len(entries) != 1 || entries[0].Name != key {
		return suite.Config{}, fmt.Errorf("asked for config %s, got %d entries", key, len(entries))
	}
	return suite.Config{Value: entries[0].Value, IsDefault: entries[0].Source == sarama.SourceDefault}, nil
}

func (d *driver) AlterConfig(_ context.Context, topic, key string, value *string) error {
	entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value}
	if value == nil {
		entry.Operation = sarama.IncrementalAlterConfigsOperationDelete
	}
	return d.admin.IncrementalAlterConfig(sarama.TopicResource, topic,
		map[string]sarama.IncrementalAlterConfigsEntry{key: entry}, false)
}

func (d *driver) CreatePartitions(_ context.Context, topic string, count int32) error {
	return d.admin.CreatePartitions(topic, count, nil, false)
}

func (d *driver) DeleteRecords(_ context.Context, topic string, partition int32, before int64) error {
	return d.admin.DeleteRecords(topic, map[int32]int64{partition: before})
}

func (d *driver) LogDirBytes(_ context.Context, topic string) (int64, error) {
	var ids []int32
	for _, b := range d.client.Brokers() {
		ids = append(ids, b.ID())
	}
	brokers, err := d.admin.DescribeLogDirs(ids)
	if err != nil {
		return 0, err
	}
	var bytes int64
	for _, dirs := range brokers {
		for _, dir := range dirs {
			if dir.ErrorCode != sarama.ErrNoError {
				return 0, dir.ErrorCode
			}
			for _, t := range dir.Topics {
				for _, p := range t.Partitions {
					if t.Topic == topic {
						bytes += p.Size
					}
				}
			}
		}
	}
	return bytes, nil
}
