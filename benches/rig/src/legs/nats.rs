//! What NATS JetStream does of the rows that Corelane has to reach: how much goes through, and
//! latencies at half of that.
//!
//! A record is a message that is acknowledged by itself, a partition a stream of its own. Rows have
//! the names of those they stand beside; what differs is said above the table.

use std::time::Duration;

use super::running::Running;
use super::speed::{END_TO_END, MAXIMUM, OPEN, SMALL, SpeedLeg};
use crate::disk;
use crate::error::Result;
use crate::latency::Latencies;
use crate::nats::publish::{self, Load, Open};
use crate::nats::{Connection, Stream};
use crate::sample::{Mark, Progress, Sample, Windows};
use crate::scale::{CONNECTIONS, MANY, SpeedScale};

/// Messages on the way on each connection of a closed loop: more than the records that are in five
/// batches, so that nothing waits for the client.
pub const IN_FLIGHT: usize = 1_000;
const RECORD_BYTES: usize = 1024;
const SMALL_BYTES: usize = 100;
const THREE: usize = 3;

impl SpeedLeg<'_> {
    pub(super) fn nats(&mut self, server: &Running) -> Result<()> {
        let SpeedScale { exercise, windows, .. } = self.scale.speed;
        let many = usize::try_from(MANY).unwrap_or(1);
        self.say("warming up");
        let unmeasured = Windows { warmup: exercise, length: Duration::ZERO, count: 0 };
        self.publish(server, many, CONNECTIONS, RECORD_BYTES, &unmeasured)?;
        self.say(MAXIMUM);
        let samples = self.publish(server, many, CONNECTIONS, RECORD_BYTES, &windows)?;
        self.add_samples(MAXIMUM, &samples);
        self.pace(&samples, RECORD_BYTES as u64);
        self.say(SMALL);
        let samples = self.publish(server, THREE, THREE, SMALL_BYTES, &windows)?;
        self.add_samples(SMALL, &samples);
        self.open_loop(server, OPEN, false)?;
        self.open_loop(server, END_TO_END, true)
    }

    fn publish(
        &self,
        server: &Running,
        streams: usize,
        connections: usize,
        record_bytes: usize,
        windows: &Windows,
    ) -> Result<Vec<Sample>> {
        disk::drain();
        let streams = create(server, streams)?;
        let load = Load {
            at: server.address(),
            streams: &streams,
            record_bytes,
            connections,
            in_flight: IN_FLIGHT,
        };
        let samples = publish::run_windows(&load, server.pid()?, windows)?;
        delete(server, &streams)?;
        Ok(samples)
    }

    fn open_loop(&mut self, server: &Running, what: &str, followed: bool) -> Result<()> {
        let Some(pace) = self.paces.of(self.who) else { return Ok(()) };
        let row = format!("{what}; at half of the maximum of {}", pace.of.name());
        self.say(&format!("{row}, {:.0} messages/s", pace.per_second));
        disk::drain();
        let streams = create(server, usize::try_from(MANY).unwrap_or(1))?;
        let load = Load {
            at: server.address(),
            streams: &streams,
            record_bytes: RECORD_BYTES,
            connections: CONNECTIONS,
            in_flight: 0,
        };
        let idle = Progress::default();
        let from = Mark::now(&idle, server.pid()?)?;
        let measured = publish::run_open(&Open {
            load,
            per_second: pace.per_second,
            warmup: self.scale.speed.open_warmup,
            length: self.scale.speed.open_length,
            followed,
        });
        let spent = from.until(&Mark::now(&idle, server.pid()?)?);
        let measured = measured.map(|Latencies { produced, fetched }| match followed {
            true => fetched,
            false => produced,
        });
        let due = pace.per_second * RECORD_BYTES as f64 / 1e6;
        self.add_open(&row, measured, due, &spent)?;
        delete(server, &streams)
    }
}

fn create(server: &Running, count: usize) -> Result<Vec<Stream>> {
    let mut connection = Connection::open(server.address())?;
    (0..count).map(|number| connection.create(&format!("rig-{number}"))).collect()
}

fn delete(server: &Running, streams: &[Stream]) -> Result<()> {
    let mut connection = Connection::open(server.address())?;
    streams.iter().try_for_each(|stream| connection.delete(stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Contender;
    use crate::legs::speed::Paces;
    use crate::peers::{Peer, Peers};
    use crate::results::{MEGABYTES, P99, Results};
    use crate::scale::Scale;

    #[test]
    #[ignore = "installs nats-server"]
    fn both_ways_to_keep_messages_are_measured() {
        let (peers, left_out) = Peers::install(&[Peer::Nats]);
        assert!(left_out.is_empty(), "{left_out:?}");
        // One that syncs answers in bursts.
        let windows = Windows { length: Duration::from_secs(2), ..SpeedScale::smoke().windows };
        let speed = SpeedScale { windows, ..SpeedScale::smoke() };
        let scale = Scale { speed, ..Scale::quick() };
        let (mut results, mut paces) = (Results::default(), Paces::default());
        for who in [Contender::Nats, Contender::NatsFlush] {
            let (results, paces) = (&mut results, &mut paces);
            SpeedLeg { who, scale: &scale, results, paces, peers: &peers }.run().unwrap();
        }
        assert!(results.failures.is_empty(), "{:?}", results.failures);
        let value = |who, row: &str, measure| {
            let line =
                results.lines.iter().find(|l| l.row.starts_with(row) && l.measure == measure);
            let values = line.map(|line| line.of(who).to_vec()).unwrap_or_default();
            assert!(values.iter().sum::<f64>() > 0.0, "{row} {values:?}");
        };
        for who in [Contender::Nats, Contender::NatsFlush] {
            for row in [MAXIMUM, SMALL] {
                value(who, row, MEGABYTES);
            }
            for row in [OPEN, END_TO_END] {
                value(who, &format!("{row}; at half of the maximum of {}", who.name()), P99);
            }
        }
    }
}
