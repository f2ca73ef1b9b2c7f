package main

import (
	"context"
	"errors"
	"time"

	"corelane/clients/suite"

	"github.com/IBM/sarama"
)

type transactor struct {
	inner sarama.AsyncProducer
}

func (d *driver) transactor(id string, timeout time.Duration) (*transactor, error) {
	config := producerSettings(suite.ProducerOptions{Acks: -1, Codec: "none", Idempotent: true})
	config.Producer.Transaction.ID = id
	config.Producer.Transaction.Timeout = timeout
	inner, err := sarama.NewAsyncProducer(d.bootstrap, config)
	return &transactor{inner}, err
}

// Transactor has its id initialised: sarama does that when it makes a producer.
func (d *driver) Transactor(_ context.Context, id string, timeout time.Duration) (suite.Transactor, error) {
	t, err := d.transactor(id, timeout)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *transactor) Begin() error { return t.inner.BeginTxn() }

func (t *transactor) Send(ctx context.Context, topic string, records []*suite.Record) error {
	go func() {
		for i, record := range records {
			t.inner.Input() <- message(topic, i, record)
		}
	}()
	var failure error
	for range records {
		select {
		case <-t.inner.Successes():
		case failed := <-t.inner.Errors():
			failure = errors.Join(failure, failed.Err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return failure
}

func (t *transactor) End(_ context.Context, commit bool) error {
	if commit {
		return t.inner.CommitTxn()
	}
	return t.inner.AbortTxn()
}

func (t *transactor) Close() { t.inner.AsyncClose() }

func (d *driver) Fenced(err error) bool {
	return errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch) ||
		errors.Is(err, sarama.ErrFencedInstancedId)
}

// pipe polls again what it has kept of an aborted transaction.
type pipe struct {
	*transactor
	member   *member
	source   string
	group    string
	instance *string
	again    []*suite.Record
}

func (d *driver) Pipe(ctx context.Context, source, group, id, instance string) (suite.Pipe, error) {
	t, err := d.transactor(id, time.Minute)
	if err != nil {
		return nil, err
	}
	member, err := d.join(ctx, source, group, instance)
	if err != nil {
		t.Close()
		return nil, err
	}
	p := &pipe{transactor: t, member: member, source: source, group: group}
	if instance != "" {
		p.instance = &instance
	}
	return p, nil
}

func (p *pipe) Poll(ctx context.Context) ([]*suite.Record, error) {
	if len(p.again) == 0 {
		polled, err := p.member.Poll(ctx)
		if err != nil {
			return nil, err
		}
		p.again = polled
	}
	count := min(len(p.again), suite.PipeRecords)
	records := p.again[:count]
	p.again = p.again[count:]
	return records, nil
}

func (p *pipe) Transact(ctx context.Context, sink string, records []*suite.Record, before func() bool) (bool, error) {
	if err := p.Begin(); err != nil {
		return false, err
	}
	if err := p.Send(ctx, sink, records); err != nil {
		return false, err
	}
	next := make(map[int32]int64)
	for _, record := range records {
		next[record.Partition] = record.Offset + 1
	}
	var offsets []*sarama.PartitionOffsetMetadata
	for partition, offset := range next {
		offsets = append(offsets, &sarama.PartitionOffsetMetadata{Partition: partition, Offset: offset})
	}
	p.member.mutex.Lock()
	session := p.member.session
	p.member.mutex.Unlock()
	if session == nil {
		return false, errors.New("the session of the group is over")
	}
	group := &sarama.ConsumerGroupMetadata{GroupID: p.group, GenerationID: session.GenerationID(), MemberID: session.MemberID(),
		GroupInstanceID: p.instance}
	err := p.inner.AddOffsetsToTxnWithGroupMetadata(map[string][]*sarama.PartitionOffsetMetadata{p.source: offsets}, group)
	if err != nil {
		return false, err
	}
	commit := before()
	if !commit {
		p.again = append(records[:len(records):len(records)], p.again...)
	}
	return commit, p.End(ctx, commit)
}

func (p *pipe) Close() {
	p.member.Close()
	p.transactor.Close()
}

func (d *driver) ConsumeCommitted(ctx context.Context, topic string, starts map[int32]suite.Start) (suite.Consumer, error) {
	return d.consume(ctx, topic, starts, sarama.ReadCommitted)
}
