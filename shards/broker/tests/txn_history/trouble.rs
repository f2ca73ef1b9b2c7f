//! What goes wrong beside the clients: leaders that move from core to core, cut connections, failing disk
//! operations, and another level of the feature.

use std::time::Duration;

use broker::BrokerError;
use reactor::Task;
use reactor::sim::{Choices as Dice, with_faults};
use wire::ApiKey;
use wire::messages::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};
use wire::messages::update_features_response::UpdateFeaturesResponse;

use super::calls::{SHARDS, TOPIC};
use super::clients::PARTITIONS;
use crate::support::{self, BASE_PORT, Client, Gone};

crate::response!(Updated, UpdateFeaturesResponse, borrows);

/// Lowers a level although something would be lost.
const UNSAFE_DOWNGRADE: i8 = 3;
const UPGRADE: i8 = 1;

/// Of each kind some seeds have it and others not.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Partitions change their leader, those of the coordinators too.
    pub moves: bool,
    pub cuts: bool,
    /// Single disk operations fail; that may end the broker.
    pub fails: bool,
    /// `transaction.version` goes up and down.
    pub levels: bool,
}

impl Trouble {
    pub fn of(dice: &mut Dice) -> Self {
        Trouble {
            moves: dice.one_in(2),
            cuts: dice.one_in(3),
            fails: dice.one_in(4),
            levels: dice.one_in(4),
        }
    }
}

pub async fn make(trouble: Trouble, mut dice: Dice) {
    let mut client = None;
    loop {
        reactor::sleep(Duration::from_millis(20 + dice.below(400))).await;
        let kind = dice.below(4);
        if kind == 1 && trouble.cuts {
            reactor::sim::cut_connections(BASE_PORT + dice.below(u64::from(SHARDS)) as u16);
        }
        if kind == 2 && trouble.fails {
            let ops = dice.below(40);
            with_faults(|faults| faults.disk.eio_once = Some(ops));
        }
        let asked = match kind {
            0 if trouble.moves => move_one(&mut client, &mut dice).await,
            3 if trouble.levels => change_level(&mut client, &mut dice).await,
            _ => Ok(()),
        };
        if asked.is_err() {
            client = None;
        }
    }
}

async fn connected(client: &mut Option<Client>) -> Result<&mut Client, Gone> {
    if client.is_none() {
        *client = Some(Client::connect(support::addresses(SHARDS, BASE_PORT)[0]).await?);
    }
    client.as_mut().ok_or(Gone("not connected".to_owned()))
}

async fn move_one(client: &mut Option<Client>, dice: &mut Dice) -> Result<(), Gone> {
    let (topic, partitions) = match dice.below(3) {
        0 => (TOPIC, PARTITIONS as u64),
        1 => ("__transaction_state", 3),
        _ => ("__consumer_offsets", 2),
    };
    let partition = dice.below(partitions) as i32;
    let node = 1000 + dice.below(u64::from(SHARDS)) as i32;
    connected(client).await?.reassign(topic, partition, Some(vec![node])).await?;
    Ok(())
}

async fn change_level(client: &mut Option<Client>, dice: &mut Dice) -> Result<(), Gone> {
    let level = dice.below(3) as i16;
    let client = connected(client).await?;
    for upgrade_type in [UPGRADE, UNSAFE_DOWNGRADE] {
        let update = FeatureUpdateKey {
            feature: "transaction.version".into(),
            max_version_level: level,
            upgrade_type,
            ..Default::default()
        };
        let request =
            UpdateFeaturesRequest { feature_updates: vec![update].into(), ..Default::default() };
        client.call::<_, Updated>(ApiKey::UpdateFeatures, 1, &request).await?;
    }
    Ok(())
}

/// Ends when a shard of the broker does.
pub fn shards_end(tasks: Vec<Task<Result<(), BrokerError>>>) -> Task<()> {
    reactor::spawn(async move {
        while !tasks.iter().any(Task::is_finished) {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        // What is left of the others stays: the process would be gone.
        std::mem::forget(tasks);
    })
}
