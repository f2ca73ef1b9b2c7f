package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"corelane/clients/suite"

	"github.com/IBM/sarama"
)

// pollFor is how long a member waits for records before it looks around.
const pollFor = 200 * time.Millisecond

// handed is a record with the session that it is to be marked in. Whoever takes it marks it: before
// that it might be committed unread, later not be committed at all.
type handed struct {
	*sarama.ConsumerMessage
	session sarama.ConsumerGroupSession
}

// member is a consumer group client; sarama hands records to its handler, session by session.
type member struct {
	group   sarama.ConsumerGroup
	topic   string
	records chan handed
	cancel  context.CancelFunc
	ended   chan struct{}

	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
	err     error
}

func (d *driver) Join(ctx context.Context, topic, group, protocol string) (suite.Member, error) {
	return d.join(ctx, topic, group, "")
}

func (d *driver) join(ctx context.Context, topic, group, instance string) (*member, error) {
	config := settings()
	config.Consumer.Group.InstanceId = instance
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Session.Timeout = suite.SessionTimeout
	config.Consumer.MaxWaitTime = suite.FetchWait
	joined, err := sarama.NewConsumerGroup(d.bootstrap, group, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &member{group: joined, topic: topic, records: make(chan handed), cancel: cancel,
		ended: make(chan struct{})}
	go m.run(ctx)
	return m, nil
}

// run joins again after every session: sarama ends one at each rebalance.
func (m *member) run(ctx context.Context) {
	defer close(m.ended)
	for ctx.Err() == nil {
		if err := m.group.Consume(ctx, []string{m.topic}, m); err != nil && ctx.Err() == nil {
			m.mutex.Lock()
			m.err = err
			m.mutex.Unlock()
			return
		}
	}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			select {
			case m.records <- handed{message, session}:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) Poll(ctx context.Context) ([]*suite.Record, error) {
	var records []*suite.Record
	deadline := time.After(pollFor)
	for {
		select {
		case r := <-m.records:
			r.session.MarkMessage(r.ConsumerMessage, "")
			records = append(records, &suite.Record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value})
			if len(records) >= 100 {
				return records, nil
			}
		case <-deadline:
			m.mutex.Lock()
			defer m.mutex.Unlock()
			return records, m.err
		case <-ctx.Done():
			return records, nil
		}
	}
}

func (m *member) Assigned() []int32 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.session == nil {
		return nil
	}
	return slices.Clone(m.session.Claims()[m.topic])
}

// Commit commits what was handed over. Sarama does not say what was refused, so that it is told again
// and again; it does nothing when everything is committed.
func (m *member) Commit(context.Context) (bool, error) {
	m.mutex.Lock()
	session := m.session
	m.mutex.Unlock()
	if session != nil {
		session.Commit()
	}
	return false, nil
}

func (m *member) Close() {
	m.cancel()
	<-m.ended
	m.group.Close()
}

func (d *driver) Committed(_ context.Context, group, topic string) (map[int32]int64, error) {
	found, err := d.admin.ListConsumerGroupOffsets(group, nil)
	committed := make(map[int32]int64)
	if err == nil {
		for partition, block := range found.Blocks[topic] {
			committed[partition] = block.Offset
		}
	}
	return committed, err
}

func (d *driver) ListGroups(context.Context) ([]string, error) {
	groups, err := d.admin.ListConsumerGroups()
	var names []string
	for name := range groups {
		names = append(names, name)
	}
	return names, err
}

func (d *driver) DescribeGroup(_ context.Context, group string) (string, int, error) {
	found, err := d.admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return "", 0, err
	}
	if found[0].Err != sarama.ErrNoError {
		return "", 0, found[0].Err
	}
	return found[0].State, len(found[0].Members), nil
}

func (d *driver) DeleteGroup(_ context.Context, group string) error {
	return d.admin.DeleteConsumerGroup(group)
}
