//! Metrics: what the broker tells operators about itself, pulled over HTTP.
//!
//! Counting is plain arithmetic in the owner's struct. A scrape asks every shard over the mesh,
//! each calls its contributors (below), and shard 0 answers the sum. Names are
//! `corelane_<noun>_<unit>[_total]`; labels go down to the topic, and to the partition only where
//! one is in trouble.

mod http;
mod logs;
mod samples;
mod scheduling;
mod traffic;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use reactor::sync::{OneshotSender, oneshot};

pub(crate) use http::start;
pub use samples::Samples;
pub(crate) use traffic::{TopicTraffic, Traffic};

use crate::mesh::ShardMessage;
use crate::shard::Shard;

/// A shard that does not answer in this time is reported as not up.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Whoever has something to tell. Order does not matter.
const CONTRIBUTORS: &[fn(&Shard, &mut Samples)] = &[
    crate::listener::samples,
    crate::cleaner::samples,
    crate::groups::samples,
    crate::transactions::samples,
    traffic::samples,
    logs::samples,
    logs::memory,
    crate::recovery::samples,
    crate::data_dirs::metrics::samples,
    scheduling::samples,
];

/// A shard's part in metrics.
#[derive(Default)]
pub(crate) struct Metrics {
    pub traffic: Traffic,
    /// The broker has started; until then other shards cannot be asked.
    pub serving: Cell<bool>,
    /// Scrapes that wait for another shard, by token.
    waiting: RefCell<HashMap<u64, OneshotSender<Samples>>>,
    next_token: Cell<u64>,
}

impl Metrics {
    /// Hands another shard's answer to the scrape that waits for it.
    pub fn finish(&self, token: u64, samples: Samples) {
        if let Some(sender) = self.waiting.borrow_mut().remove(&token) {
            // The scraper may have left.
            let _ = sender.send(samples);
        }
    }
}

/// What this shard has to tell.
pub(crate) fn sample(shard: &Shard) -> Samples {
    let mut samples = Samples::default();
    for contribute in CONTRIBUTORS {
        contribute(shard, &mut samples);
    }
    let help = "Whether the shard answered this scrape.";
    samples.gauge("corelane_shard_up", help, &[("shard", &shard.id().to_string())], 1.0);
    let (help, version) = ("Corelane's version.", env!("CARGO_PKG_VERSION"));
    let of_process = f64::from(u8::from(shard.id() == crate::shard::CONTROLLER_SHARD));
    samples.gauge("corelane_build_info", help, &[("version", version)], of_process);
    samples
}

/// What all shards have to tell, and how many did not answer.
async fn gather(shard: &Rc<Shard>) -> (Samples, usize) {
    let others: Vec<_> = (0..shard.mesh.shards())
        .filter(|number| *number != shard.id())
        .map(|number| (number, reactor::spawn(ask(shard.clone(), number))))
        .collect();
    let mut all = sample(shard);
    let mut silent = 0;
    for (number, answer) in others {
        match answer.await {
            Some(samples) => all.merge(samples),
            None => {
                silent += 1;
                let help = "Whether the shard answered this scrape.";
                all.gauge("corelane_shard_up", help, &[("shard", &number.to_string())], 0.0);
            }
        }
    }
    (all, silent)
}

async fn ask(shard: Rc<Shard>, number: usize) -> Option<Samples> {
    let metrics = &shard.metrics;
    let token = metrics.next_token.get();
    metrics.next_token.set(token + 1);
    let (sender, receiver) = oneshot();
    metrics.waiting.borrow_mut().insert(token, sender);
    let answer = async {
        shard.mesh.send(number, ShardMessage::Sample { token }).await.ok()?;
        receiver.await.ok()
    };
    let answered = reactor::timeout(ANSWER_WAIT, answer).await.ok().flatten();
    metrics.waiting.borrow_mut().remove(&token);
    answered
}
