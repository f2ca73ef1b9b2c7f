//! `corelane group`: list, describe, reset and delete consumer groups of any Kafka cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::args::{
    GroupCommand, GroupDeleteArgs, GroupDescribeArgs, GroupListArgs, GroupResetArgs,
};
use super::consume::{Span, positions};
use super::shown::Shown;
use super::{cluster, print};
use crate::client::Cluster;
use crate::client::error::ClientError;
use crate::client::groups::{self, Described, NOBODY, TopicPartition};
use crate::client::offsets::{Isolation, LATEST, offsets_at};
use crate::error::{Error, Result, note};

pub async fn run(command: GroupCommand) -> Result<()> {
    match command {
        GroupCommand::List(args) => list(args).await,
        GroupCommand::Describe(args) => describe(args).await,
        GroupCommand::Reset(args) => reset(args).await,
        GroupCommand::Delete(args) => delete(args).await,
    }
}

async fn list(args: GroupListArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    let listed = cluster.retrying(async |cluster| groups::list(cluster).await).await?;
    let wanted = |state: &str| {
        args.state.is_empty() || args.state.iter().any(|it| it.eq_ignore_ascii_case(state))
    };
    let lines = listed.iter().filter(|group| wanted(&group.state));
    let line = |group: &groups::Listed| {
        let words = [group.name.as_str(), &group.kind.to_lowercase(), &group.state.to_lowercase()]
            .map(str::to_owned);
        let told = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        Shown(&told.join("  ")).to_string() + "\n"
    };
    print(lines.map(line).collect::<String>()).await
}

async fn describe(args: GroupDescribeArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    let mut out = String::new();
    for group in &args.groups {
        let found = cluster
            .retrying(async |cluster| {
                let described = groups::describe(cluster, group).await?;
                Ok((described, groups::committed(cluster, group).await?))
            })
            .await;
        let (described, committed) = found.map_err(|error| not_found(group, error))?;
        let mut partitions: BTreeSet<TopicPartition> = committed.keys().cloned().collect();
        partitions.extend(described.members.iter().flat_map(|it| it.partitions.iter().cloned()));
        let ends = ends(&mut cluster, &partitions).await?;
        let lines: Vec<Line> = partitions
            .into_iter()
            .map(|partition| Line {
                committed: committed.get(&partition).copied(),
                end: ends.get(&partition).copied(),
                partition,
            })
            .collect();
        write_group(group, &described, &lines, &mut out);
    }
    print(out).await
}

fn not_found(group: &str, error: ClientError) -> Error {
    match error.code() {
        Some(wire::ErrorCode::GroupIdNotFound) => {
            let what = format!("there is no group {group}");
            Error::refused(what, "`corelane group list` shows what there is")
        }
        _ => error.into(),
    }
}

/// Where partitions end. Topics that are gone are left out: their offsets may be there for a while.
async fn ends(
    cluster: &mut Cluster,
    partitions: &BTreeSet<TopicPartition>,
) -> Result<BTreeMap<TopicPartition, i64>> {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        by_topic.entry(topic).or_default().push(*partition);
    }
    let mut ends = BTreeMap::new();
    for (topic, partitions) in by_topic {
        let metadata = cluster.retrying(async |it| it.metadata(Some(&[topic])).await).await?;
        let there = metadata.topics.iter().any(|it| it.name == topic && it.error_code == 0);
        if !there {
            continue;
        }
        let found = cluster
            .retrying(async |cluster| {
                offsets_at(cluster, topic, &partitions, LATEST, Isolation::Uncommitted).await
            })
            .await?;
        for (partition, end) in found {
            ends.insert((topic.to_owned(), partition), end.unwrap_or(0));
        }
    }
    Ok(ends)
}

/// One partition that a group reads, or has read.
struct Line {
    partition: TopicPartition,
    committed: Option<i64>,
    end: Option<i64>,
}

impl Line {
    fn lag(&self) -> Option<i64> {
        Some((self.end? - self.committed?).max(0))
    }
}

fn write_group(name: &str, group: &Described, lines: &[Line], out: &mut String) {
    let lag: i64 = lines.iter().filter_map(Line::lag).sum();
    let (kind, state) = (group.kind.to_lowercase(), group.state.to_lowercase());
    let (name, state) = (Shown(name), Shown(&state));
    let (members, node) = (group.members.len(), group.coordinator);
    // Writing into a String cannot fail.
    let _ =
        writeln!(out, "{name}  {kind}  {state}  members {members}  lag {lag}  coordinator {node}");
    let known = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
    for line in lines {
        let (topic, index) = &line.partition;
        let topic = Shown(topic);
        let (committed, end, lag) = (known(line.committed), known(line.end), known(line.lag()));
        let _ = write!(out, "  {topic}-{index}  committed {committed}  end {end}  lag {lag}");
        let owner = group.members.iter().find(|it| it.partitions.contains(&line.partition));
        if let Some(member) = owner {
            let _ = write!(out, "  member {}", Shown(&member.id));
        }
        out.push('\n');
    }
    for member in &group.members {
        let (id, client) = (Shown(&member.id), Shown(&member.client));
        let host = Shown(member.host.trim_start_matches('/'));
        let count = member.partitions.len();
        let _ = write!(out, "  {id}  {client}@{host}  partitions {count}");
        if let Some(instance) = &member.instance {
            let _ = write!(out, "  instance {}", Shown(instance));
        }
        out.push('\n');
    }
}

async fn reset(args: GroupResetArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    let topic = args.source.topic.as_str();
    let isolation = Isolation::Uncommitted;
    let span = Span::of(&mut cluster, &args.source, isolation).await?;
    let to = positions(&mut cluster, &span, args.to, isolation).await?;
    let group = args.group.as_str();
    let before = cluster.retrying(async |cluster| groups::committed(cluster, group).await).await?;
    if !args.dry_run {
        let done = cluster
            .retrying(async |cluster| groups::commit(cluster, group, NOBODY, topic, &to).await)
            .await;
        done.map_err(|error| match error.code() {
            Some(wire::ErrorCode::UnknownMemberId) => {
                let what = format!("group {group} has members");
                Error::refused(what, "stop its consumers first")
            }
            _ => error.into(),
        })?;
    }
    let mut out = String::new();
    for (partition, offset) in &to {
        let was = before.get(&(topic.to_owned(), *partition));
        let was = was.map_or("-".to_owned(), |offset| offset.to_string());
        let _ = writeln!(out, "{topic}-{partition}  {was} -> {offset}");
    }
    if args.dry_run {
        out.push_str("nothing was changed (--dry-run)\n");
    }
    print(out).await
}

async fn delete(args: GroupDeleteArgs) -> Result<()> {
    let mut cluster = cluster(&args.cluster);
    let mut refused = None;
    for group in &args.groups {
        let done = cluster.retrying(async |cluster| groups::delete(cluster, group).await).await;
        match done {
            Ok(()) => print(format!("{} deleted\n", Shown(group))).await?,
            Err(error) => {
                let error = match error.code() {
                    Some(wire::ErrorCode::NonEmptyGroup) => {
                        let what = format!("group {group} has members");
                        Error::refused(what, "stop its consumers first")
                    }
                    _ => not_found(group, error),
                };
                if let Some(earlier) = refused.replace(error) {
                    note(format_args!("corelane: {earlier}"));
                }
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::groups::DescribedMember;

    #[test]
    fn a_group_is_shown_with_lag_and_members() {
        let member = DescribedMember {
            id: "m-1".into(),
            instance: Some("node-7".into()),
            client: "a\u{1b}pp".into(),
            host: "/10.0.0.7".into(),
            partitions: vec![("orders".into(), 1)],
        };
        let group = Described {
            kind: "Consumer",
            state: "Stable".into(),
            coordinator: 1001,
            members: vec![member],
        };
        let line =
            |index, committed, end| Line { partition: ("orders".into(), index), committed, end };
        let lines = [line(0, Some(3), Some(10)), line(1, None, Some(4)), line(2, Some(1), None)];
        let mut out = String::new();
        write_group("read\ners", &group, &lines, &mut out);
        assert_eq!(
            out,
            "read\\ners  consumer  stable  members 1  lag 7  coordinator 1001\n  \
             orders-0  committed 3  end 10  lag 7\n  \
             orders-1  committed -  end 4  lag -  member m-1\n  \
             orders-2  committed 1  end -  lag -\n  \
             m-1  a\\x1bpp@10.0.0.7  partitions 1  instance node-7\n"
        );
    }
}
