//! How soon after its start a broker accepts a record: knock until it does.
//!
//! Every attempt is a fresh connection, a look-up of the topic and a produce of one record to each
//! partition asked for; any failure means "not yet". The topic exists before the start.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::look_up;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::payload::{Batch, Envelope};
use crate::produce::accepted;

/// Short against what is measured, long enough not to take the processor from the starting broker.
const KNOCK_EVERY: Duration = Duration::from_millis(1);
const ACCEPTED_WITHIN: Duration = Duration::from_secs(120);

/// Time from `launched` to the first accepted produce to partition 0, and to the moment when
/// every partition has accepted one.
pub fn accepted_produces(at: SocketAddr, topic: &str, launched: Instant) -> Result<[Duration; 2]> {
    let batch = Batch::build(100, 1)?;
    let partitions = knock(launched, || look_up(at, topic))?.leaders.len();
    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
    let mut first = None;
    for partition in 0..partitions {
        knock(launched, || produce_one(at, topic, partition, &batch))?;
        first = first.or(Some(launched.elapsed()));
    }
    Ok([first.unwrap_or_default(), launched.elapsed()])
}

fn produce_one(at: SocketAddr, topic: &str, partition: i32, batch: &Batch) -> Result<()> {
    let topic = look_up(at, topic)?;
    let leader = usize::try_from(partition).ok().and_then(|index| topic.leaders.get(index));
    let leader = leader.ok_or_else(|| Error::NoLeader(topic.name.clone()))?;
    let mut connection = Connection::open(*leader)?;
    let mut envelope = Envelope::build(&topic, partition, batch)?;
    envelope.set_correlation(1);
    connection.send_slices(&mut envelope.parts(batch).map(IoSlice::new))?;
    accepted(connection.receive()?, 1).map(|_| ())
}

fn knock<T>(launched: Instant, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if launched.elapsed() > ACCEPTED_WITHIN => {
                let what = "the broker accepts no produce".to_owned();
                let last = error.to_string();
                return Err(Error::TooLate { what, within: ACCEPTED_WITHIN, last });
            }
            Err(_) => thread::sleep(KNOCK_EVERY),
        }
    }
}
