//! The coordinator of consumer groups as a kind of [`Machine`].

use std::rc::Rc;

use coord::{CoordError, Coordinator, Decision, Record, Reply};
use meta::controller::GROUP_OFFSETS_TOPIC;

use super::topics::ImageTopics;
use super::{group_configs, settings};
use crate::coordinators::{Decided, Machine, Seat, Seats};
use crate::partition::Partition;
use crate::shard::Shard;

/// There is nothing that groups have others do.
pub(crate) enum NoErrand {}

impl From<Decision> for Decided<Coordinator> {
    fn from(decision: Decision) -> Self {
        let Decision { records, cuts, producer, replies, .. } = decision;
        Decided { records, cuts, producer, replies, errands: Vec::new() }
    }
}

impl Machine for Coordinator {
    const WHAT: &'static str = "group coordinator";
    const TOPIC: &'static str = GROUP_OFFSETS_TOPIC;
    type Record = Record<'static>;
    type Reply = Reply;
    type Errand = NoErrand;

    fn seats(shard: &Shard) -> &Seats<Self> {
        &shard.groups.seats
    }

    fn begin(shard: &Shard, _partition: &Partition) -> Self {
        Coordinator::new(settings::of_shard(shard))
    }

    /// A wall clock that is set must not end sessions, nor put off rebalances.
    fn clock_ms(shard: &Shard) -> i64 {
        shard.groups.clock.now_ms()
    }

    fn load_piece_bytes(shard: &Shard) -> usize {
        usize::try_from(shard.config().groups.load_buffer_bytes).unwrap_or(usize::MAX)
    }

    fn replay(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        producer: Option<i64>,
    ) -> Result<(), CoordError> {
        Coordinator::replay(self, key, value, producer)
    }

    fn replay_marker(&mut self, producer_id: i64, committed: bool) {
        Coordinator::replay_marker(self, producer_id, committed);
    }

    fn loaded(&mut self, shard: &Shard, partition: &Partition, now_ms: i64) -> Decided<Self> {
        self.set_config(settings::of_shard(shard));
        for (group, config) in group_configs(shard, partition) {
            self.set_group_config(&group, Some(config));
        }
        let missed = shard.groups.missed.borrow();
        if !missed.is_empty() {
            self.topics_deleted(&missed);
        }
        Coordinator::loaded(self, now_ms, reactor::wall_clock_ms()).into()
    }

    fn next_deadline(&mut self) -> Option<i64> {
        Coordinator::next_deadline(self)
    }

    fn on_time(&mut self, shard: &Shard, now_ms: i64) -> Decided<Self> {
        let wall_ms = reactor::wall_clock_ms();
        Coordinator::on_time(self, now_ms, wall_ms, &ImageTopics::new(shard)).into()
    }

    fn to_bytes(record: &Self::Record) -> Result<(Vec<u8>, Option<Vec<u8>>), CoordError> {
        record.to_bytes()
    }

    async fn run(_shard: Rc<Shard>, _seat: Rc<Seat<Self>>, errand: NoErrand) {
        match errand {}
    }
}
