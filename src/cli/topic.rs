//! `corelane topic`: create, list, describe, delete and alter, on any Kafka cluster.

use std::fmt::Write as _;

use wire::ErrorCode;

use super::args::{
    TopicAlterArgs, TopicCommand, TopicCreateArgs, TopicDeleteArgs, TopicDescribeArgs,
    TopicListArgs,
};
use super::shown::Shown;
use super::{cluster, print, settings};
use crate::client::admin::{self, NewTopic, Outcome, Setting};
use crate::client::error::ClientError;
use crate::client::metadata::{PartitionMetadata, TopicMetadata};
use crate::error::{Error, Result, note};

pub async fn run(command: TopicCommand) -> Result<()> {
    match command {
        TopicCommand::Create(args) => create(args).await,
        TopicCommand::List(args) => list(args).await,
        TopicCommand::Describe(args) => describe(args).await,
        TopicCommand::Delete(args) => delete(args).await,
        TopicCommand::Alter(args) => alter(args).await,
    }
}

async fn create(args: TopicCreateArgs) -> Result<()> {
    let configs = settings(&args.set)?;
    let topics: Vec<NewTopic> = args
        .topics
        .iter()
        .map(|name| NewTopic {
            name: name.clone(),
            partitions: args.partitions,
            replication_factor: args.replication_factor,
            configs: configs.clone(),
        })
        .collect();
    let done = if args.dry_run { "could be created" } else { "created" };
    let accept = args.if_not_exists.then_some((ErrorCode::TopicAlreadyExists, "is there already"));
    let mut cluster = cluster(&args.cluster);
    settle(args.topics.clone(), done, accept, async |names| {
        let asked: Vec<NewTopic> =
            topics.iter().filter(|topic| names.contains(&topic.name)).cloned().collect();
        cluster
            .retrying(async |cluster| admin::create_topics(cluster, &asked, args.dry_run).await)
            .await
    })
    .await
}

async fn delete(args: TopicDeleteArgs) -> Result<()> {
    let accept = args.if_exists.then_some((ErrorCode::UnknownTopicOrPartition, "is not there"));
    let mut cluster = cluster(&args.cluster);
    settle(args.topics.clone(), "deleted", accept, async |names| {
        cluster.retrying(async |cluster| admin::delete_topics(cluster, names).await).await
    })
    .await
}

/// Asks for all topics, again for those whose refusal may pass, and reports each. All are tried;
/// the first refusal is the command's.
async fn settle(
    mut names: Vec<String>,
    done: &str,
    accept: Option<(ErrorCode, &str)>,
    mut ask: impl AsyncFnMut(&[String]) -> std::result::Result<Vec<Outcome>, ClientError>,
) -> Result<()> {
    /// A controller that moves or a request that timed out; the waiting is in `ask`.
    const ROUNDS: usize = 3;
    names.sort();
    names.dedup();
    let mut refused: Option<ClientError> = None;
    for round in 1..=ROUNDS {
        let mut again = Vec::new();
        for (name, result) in ask(&names).await? {
            let accepted = accept.filter(|(code, _)| {
                result.as_ref().err().and_then(ClientError::code) == Some(*code)
            });
            match (result, accepted) {
                (Ok(()), _) => print(format!("{name} {done}\n")).await?,
                (Err(_), Some((_, words))) => print(format!("{name} {words}\n")).await?,
                (Err(error), None) if error.retriable() && round < ROUNDS => again.push(name),
                (Err(error), None) => {
                    if let Some(earlier) = refused.replace(error) {
                        note(format_args!("corelane: {}", Error::from(earlier)));
                    }
                }
            }
        }
        if again.is_empty() {
            break;
        }
        names = again;
        reactor::sleep(std::time::Duration::from_millis(200)).await;
    }
    refused.map_or(Ok(()), |error| Err(error.into()))
}

async fn list(args: TopicListArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    let metadata = cluster.retrying(async |cluster| cluster.metadata(None).await).await?;
    let names = metadata.topics.iter().filter(|topic| args.internal || !topic.internal);
    print(names.map(|topic| format!("{}\n", Shown(&topic.name))).collect::<String>()).await
}

async fn describe(args: TopicDescribeArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    let names: Vec<&str> = args.topics.iter().map(String::as_str).collect();
    let asked = (!names.is_empty()).then_some(names.as_slice());
    let metadata = cluster.retrying(async |cluster| cluster.metadata(asked).await).await?;
    let topics: Vec<&TopicMetadata> =
        metadata.topics.iter().filter(|topic| asked.is_some() || !topic.internal).collect();
    for topic in &topics {
        ClientError::check(format!("topic {}", topic.name), topic.error_code, None)?;
    }
    let mut settings = Vec::new();
    if (args.configs || args.all_configs) && !topics.is_empty() {
        let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
        settings = cluster
            .retrying(async |cluster| admin::describe_configs(cluster, &names).await)
            .await?;
    }
    let mut out = String::new();
    for topic in topics {
        write_topic(topic, &mut out);
        let own = settings.iter().find(|(name, _)| *name == topic.name);
        if let Some((_, settings)) = own {
            write_settings(settings, args.all_configs, &mut out);
        }
    }
    print(out).await
}

fn write_topic(topic: &TopicMetadata, out: &mut String) {
    let replicas = topic.partitions.iter().map(|p| p.replicas.len()).max().unwrap_or(0);
    let id = if topic.id.is_empty() { String::new() } else { format!("  id {}", topic.id) };
    let internal = if topic.internal { "  internal" } else { "" };
    let count = topic.partitions.len();
    // Writing into a String cannot fail.
    let name = Shown(&topic.name);
    let _ = writeln!(out, "{name}  partitions {count}  replicas {replicas}{id}{internal}");
    for partition in &topic.partitions {
        write_partition(partition, out);
    }
}

fn write_partition(partition: &PartitionMetadata, out: &mut String) {
    let list = |nodes: &[i32]| nodes.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let leader = partition.leader.map_or("none".to_owned(), |node| node.to_string());
    let (replicas, in_sync) = (list(&partition.replicas), list(&partition.in_sync));
    let index = partition.index;
    let _ = write!(out, "  {index}  leader {leader}  replicas {replicas}  in-sync {in_sync}");
    if !partition.offline.is_empty() {
        let _ = write!(out, "  offline {}", list(&partition.offline));
    }
    out.push('\n');
}

fn write_settings(settings: &[Setting], all: bool, out: &mut String) {
    for setting in settings.iter().filter(|setting| all || !setting.default) {
        let value = Shown(setting.value.as_deref().unwrap_or("(none)"));
        let source = match (setting.own, setting.default) {
            (true, _) => "topic",
            (false, true) => "default",
            (false, false) => "broker",
        };
        let _ = writeln!(out, "  {}={value}  ({source})", Shown(&setting.name));
    }
}

async fn alter(args: TopicAlterArgs) -> Result<()> {
    let mut changes: Vec<(String, Option<String>)> =
        settings(&args.set)?.into_iter().map(|(key, value)| (key, Some(value))).collect();
    changes.extend(args.unset.iter().map(|key| (key.clone(), None)));
    if changes.is_empty() && args.partitions.is_none() {
        return Err(Error::config("nothing to change", "add --partitions, --set or --unset"));
    }
    let topic = args.topic.as_str();
    let mut cluster = cluster(&args.cluster);
    // Settings first: they are checked as a whole, and a growing topic should have them.
    if !changes.is_empty() {
        cluster
            .retrying(async |cluster| admin::alter_configs(cluster, topic, &changes).await)
            .await?;
        print(format!("{topic} settings changed\n")).await?;
    }
    if let Some(count) = args.partitions {
        cluster
            .retrying(async |cluster| admin::create_partitions(cluster, topic, count).await)
            .await?;
        print(format!("{topic} has {count} partitions\n")).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_shown_with_its_partitions() {
        let partition = |index, leader, offline: &[i32]| PartitionMetadata {
            index,
            leader,
            replicas: vec![1000, 1001],
            in_sync: vec![1000],
            offline: offline.to_vec(),
        };
        let topic = TopicMetadata {
            error_code: 0,
            name: "orders".into(),
            id: "abc".into(),
            internal: false,
            partitions: vec![partition(0, Some(1000), &[]), partition(1, None, &[1001])],
        };
        let mut out = String::new();
        write_topic(&topic, &mut out);
        assert_eq!(
            out,
            "orders  partitions 2  replicas 2  id abc\n  \
             0  leader 1000  replicas 1000,1001  in-sync 1000\n  \
             1  leader none  replicas 1000,1001  in-sync 1000  offline 1001\n"
        );
    }

    #[test]
    fn only_changed_settings_are_shown_unless_all_are_asked_for() {
        let setting = |name: &str, own, default| Setting {
            name: name.into(),
            value: Some("1".into()),
            own,
            default,
        };
        let all =
            [setting("a", true, false), setting("b", false, true), setting("c", false, false)];
        let mut out = String::new();
        write_settings(&all, false, &mut out);
        assert_eq!(out, "  a=1  (topic)\n  c=1  (broker)\n");
        out.clear();
        write_settings(&all, true, &mut out);
        assert_eq!(out.lines().count(), 3);
    }
}
