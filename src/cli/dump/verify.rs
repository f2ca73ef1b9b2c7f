//! `corelane dump --verify`: whether the files of a data directory, of a partition or one file fit
//! together; also what `import` asks before it takes anything over.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use broker::offsets::Offsets;
use log::Vouched;
use log::checkpoints::{self, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, decode_offsets};
use log::inspect::{
    FileName, Finding, Findings, PartitionContext, PartitionSummary, Severity,
    verify_metadata_snapshot, verify_partition,
};
use reactor::fs;
use wire::Uuid;

use super::line::Line;
use super::small::is_offset_checkpoint;
use super::{Output, in_use, is_metadata_snapshot, list, unreadable};
use crate::error::{Error, Result};
use crate::process::meta_properties::{FILE_NAME, MetaProperties};

const CLEANER_POINTS: &str = "cleaner-offset-checkpoint";
/// Text files of a data directory that are larger are not read.
const CHECKPOINT_BYTES_MAX: u64 = 256 << 20;

pub async fn run(paths: &[PathBuf], output: &mut Output) -> Result<()> {
    let mut problems = 0;
    let homes = homes(paths).await;
    for path in paths {
        let kind = fs::metadata(path).await.map_err(|error| unreadable(path, &error))?;
        problems += match (kind.is_dir, is_partition(path).await?) {
            (true, true) => one_partition(path, None, output).await?,
            (true, false) => data_dir(path, &homes, output).await?,
            (false, _) => one_file(path, output).await?,
        };
    }
    if problems > 0 {
        return Err(Error::data_dir(format!("{problems} problems found"), ""));
    }
    Ok(())
}

/// Partitions that have a folder in any of the data directories.
type Homes = HashSet<(String, i32)>;

async fn homes(data_dirs: &[PathBuf]) -> Homes {
    let mut homes = Homes::new();
    for dir in data_dirs {
        // What cannot be listed is told when its turn comes.
        let entries = list(dir).await.unwrap_or_default();
        homes.extend(entries.iter().filter_map(|e| log::parse_partition_dir_name(&e.name)));
    }
    homes
}

/// A folder with a segment, or that is named as a partition.
async fn is_partition(path: &Path) -> Result<bool> {
    if !fs::metadata(path).await.map_err(|error| unreadable(path, &error))?.is_dir {
        return Ok(false);
    }
    let entries = list(path).await?;
    let whole = entries.iter().any(|entry| entry.name == FILE_NAME);
    let segment = |name: &str| matches!(FileName::of(name), FileName::Segment(_));
    let named = path.file_name().and_then(|name| name.to_str());
    Ok(!whole
        && (entries.iter().any(|entry| segment(&entry.name))
            || named.and_then(log::parse_partition_dir_name).is_some()))
}

/// Prints findings; gives how many are worse than a note.
async fn tell(findings: &[Finding], output: &mut Output) -> Result<u64> {
    let mut problems = 0;
    for finding in findings {
        output.line(&finding_line(finding)).await?;
        problems += u64::from(finding.severity > Severity::Note);
    }
    Ok(problems)
}

fn finding_line(finding: &Finding) -> Line {
    let severity = match finding.severity {
        Severity::Note => "note",
        Severity::Repairable => "repairable",
        Severity::Damage => "damage",
    };
    let at = finding.position.map_or(String::new(), |position| format!(" at {position}"));
    let title = format!("{severity}: {}{at}: {}", finding.file.display(), finding.text);
    let mut line = Line::titled("finding", title);
    line.text("severity", severity)
        .text("file", finding.file.display())
        .maybe("position", finding.position.and_then(|p| i64::try_from(p).ok()))
        .text("text", &finding.text);
    line
}

/// Verifies a partition and gives what was found, the worst first to last as met. Without a recovery
/// point the data directory around it is asked for one.
pub async fn partition(
    dir: &Path,
    mut context: PartitionContext,
) -> Result<(PartitionSummary, Vec<Finding>)> {
    if context.recovery_point.is_none() {
        context.recovery_point = point_beside(dir).await;
    }
    let mut found = Vec::new();
    let mut sink = |finding| found.push(finding);
    let mut findings = Findings::new(&mut sink);
    let verified = verify_partition(dir, context, &mut findings).await;
    let mut summary = verified.map_err(|error| unreadable(dir, &error))?;
    for entry in list(dir).await? {
        if is_metadata_snapshot(&entry.name) {
            let path = dir.join(&entry.name);
            let verified = verify_metadata_snapshot(&path, &mut findings).await;
            verified.map_err(|error| unreadable(&path, &error))?;
        }
    }
    if summary.segments == 0 {
        summary.end = 0;
    }
    Ok((summary, found))
}

/// How far the partitions of a data directory have gone, by its own list. Read before their folders: what
/// a running broker writes meanwhile is behind that.
async fn vouched_in(data_dir: &Path) -> Result<Offsets> {
    let read = broker::offsets::read(data_dir).await;
    read.map_err(|error| unreadable(&data_dir.join(broker::offsets::FILE), &error))
}

async fn vouched_for(dir: &Path, offsets: &Offsets) -> Vouched {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((_, number)) = log::parse_partition_dir_name(name) else { return Vouched::default() };
    // A damaged one is told by the walk.
    let id = checkpoints::read_partition_metadata(dir).await.ok().flatten();
    id.and_then(|id| offsets.get(&(id, number))).copied().unwrap_or_default()
}

/// The recovery point that the data directory around a partition has for it.
async fn point_beside(dir: &Path) -> Option<i64> {
    let name = dir.file_name()?.to_str()?;
    let (topic, number) = log::parse_partition_dir_name(name)?;
    let lines = checkpoints::read_offsets(dir.parent()?, RECOVERY_POINTS).await.ok()?;
    lines.iter().find(|l| l.topic == topic && l.partition == number).map(|l| l.offset)
}

async fn one_partition(dir: &Path, point: Option<i64>, output: &mut Output) -> Result<u64> {
    let vouched = match dir.parent() {
        Some(data_dir) => vouched_for(dir, &vouched_in(data_dir).await?).await,
        None => Vouched::default(),
    };
    let context = PartitionContext { recovery_point: point, vouched, foreign: false };
    let (summary, found) = partition(dir, context).await?;
    let problems = tell(&found, output).await?;
    output.line(&summary_line(dir, &summary, problems)).await?;
    Ok(problems)
}

fn summary_line(dir: &Path, summary: &PartitionSummary, problems: u64) -> Line {
    let PartitionSummary { segments, batches, records, bytes, start, end, .. } = summary;
    let state = if problems == 0 { "ok" } else { "bad" };
    let title = format!(
        "{state}: {}: {segments} segments, offsets {start} to {end}, {batches} batches, \
         {records} records, {bytes} bytes",
        dir.display()
    );
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut line = Line::titled("partition", title);
    line.text("folder", dir.display())
        .number("problems", number(problems))
        .number("segments", number(*segments as u64))
        .number("startOffset", *start)
        .number("endOffset", *end)
        .number("batches", number(*batches))
        .number("records", number(*records))
        .number("bytes", number(*bytes));
    line
}

/// One file is held against the partition it is in; only what is wrong with itself is told.
async fn one_file(path: &Path, output: &mut Output) -> Result<u64> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(0),
    };
    let found = if FileName::of(name) == FileName::Other && !is_partition(parent).await? {
        top_file(path, name).await?.1
    } else {
        let (_, found) = partition(parent, PartitionContext::default()).await?;
        let of_file = |finding: &Finding| finding.file.file_name() == path.file_name();
        found.into_iter().filter(of_file).collect()
    };
    tell(&found, output).await
}

type Lines = Vec<(u64, checkpoints::PartitionOffset)>;

/// A file at the top of a data directory. Of a checkpoint also its lines and where they are.
async fn top_file(path: &Path, name: &str) -> Result<(Lines, Vec<Finding>)> {
    let mut found = Vec::new();
    let mut sink = |finding| found.push(finding);
    let mut findings = Findings::new(&mut sink);
    let mut lines = Vec::new();
    let known = name == FILE_NAME || is_offset_checkpoint(name);
    if is_metadata_snapshot(name) {
        let verified = verify_metadata_snapshot(path, &mut findings).await;
        verified.map_err(|error| unreadable(path, &error))?;
    } else if known {
        let size = fs::metadata(path).await.map_err(|error| unreadable(path, &error))?.size;
        if size > CHECKPOINT_BYTES_MAX {
            findings.tell(Severity::Damage, path, None, "it is too large to be what it is named");
            return Ok((lines, found));
        }
        let bytes = fs::read(path).await.map_err(|error| unreadable(path, &error))?;
        if name == FILE_NAME {
            if let Err(error) = MetaProperties::parse(&bytes) {
                findings.tell(Severity::Damage, path, Some(0), error.to_string());
            }
        } else if !bytes.is_empty() {
            // Kafka makes an empty file before it has lines.
            match decode_offsets(&bytes) {
                Ok(entries) => lines = with_positions(&bytes, entries),
                Err(error) => {
                    findings.tell(Severity::Repairable, path, Some(0), error.to_string());
                }
            }
        }
    } else if broker::made::is_file(name) || name == broker::offsets::FILE {
        let bytes = fs::read(path).await.map_err(|error| unreadable(path, &error))?;
        let damaged = match name == broker::offsets::FILE {
            true => broker::offsets::damaged_lines(&bytes),
            false => broker::made::damaged_lines(name, &bytes),
        };
        if damaged > 0 {
            let text = format!("{damaged} lines have a wrong checksum and do not count");
            findings.tell(Severity::Repairable, path, None, text);
        }
    } else if !HARMLESS.contains(&name) && !name.starts_with(PROBE) {
        findings.tell(Severity::Note, path, None, "not a file of a data directory");
    }
    Ok((lines, found))
}

/// Other files that belong at the top of a data directory.
const HARMLESS: [&str; 5] =
    [".lock", checkpoints::CLEAN_SHUTDOWN, "lost+found", "corelane.reserve", broker::paths::FILE];

/// What a broker writes to learn whether the disk works; a crash may leave it.
const PROBE: &str = "corelane-probe-";

fn with_positions(bytes: &[u8], entries: Vec<checkpoints::PartitionOffset>) -> Lines {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    // Two lines lead.
    let starts = ends.map(|(at, _)| at as u64 + 1).skip(1);
    starts.zip(entries).collect()
}

/// What a walk through a data directory gathers.
#[derive(Default)]
struct Walk {
    ends: HashMap<(String, i32), i64>,
    topic_ids: HashMap<String, (Uuid, PathBuf)>,
    problems: u64,
    partitions: u64,
}

async fn data_dir(dir: &Path, homes: &Homes, output: &mut Output) -> Result<u64> {
    let mut walk = Walk::default();
    let mut checkpoint_lines: Vec<(PathBuf, Lines)> = Vec::new();
    let mut folders = Vec::new();
    for entry in list(dir).await? {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            folders.push(entry.name);
            continue;
        }
        let (lines, found) = top_file(&path, &entry.name).await?;
        walk.problems += tell(&found, output).await?;
        if !lines.is_empty() {
            checkpoint_lines.push((path, lines));
        }
    }
    let points: HashMap<(String, i32), i64> = checkpoint_lines
        .iter()
        .filter(|(path, _)| path.ends_with(RECOVERY_POINTS))
        .flat_map(|(_, lines)| lines)
        .map(|(_, line)| ((line.topic.clone(), line.partition), line.offset))
        .collect();
    let vouched = vouched_in(dir).await?;
    for name in folders {
        folder(dir, &name, (&points, &vouched), &mut walk, output).await?;
    }
    let running = in_use(dir).is_some();
    let found = check_lines(&checkpoint_lines, &walk.ends, homes, running);
    walk.problems += tell(&found, output).await?;
    let title =
        format!("{}: {} partitions, {} problems", dir.display(), walk.partitions, walk.problems);
    let mut line = Line::titled("data-dir", title);
    line.text("folder", dir.display())
        .number("partitions", i64::try_from(walk.partitions).unwrap_or(i64::MAX))
        .number("problems", i64::try_from(walk.problems).unwrap_or(i64::MAX));
    output.line(&line).await?;
    Ok(walk.problems)
}

async fn folder(
    dir: &Path,
    name: &str,
    (points, vouched): (&HashMap<(String, i32), i64>, &Offsets),
    walk: &mut Walk,
    output: &mut Output,
) -> Result<()> {
    let path = dir.join(name);
    let Some(key) = log::parse_partition_dir_name(name) else {
        let text = match name {
            name if name.ends_with("-delete") => "a deleted partition that is not removed yet",
            name if name.ends_with("-stray") => "a partition that was set aside",
            name if name.ends_with("-future") => "a partition on its way to this directory",
            "lost+found" => return Ok(()),
            _ => "not a folder of a partition",
        };
        let finding =
            Finding { severity: Severity::Note, file: path, position: None, text: text.to_owned() };
        tell(&[finding], output).await?;
        return Ok(());
    };
    let recovery_point = points.get(&key).copied();
    let vouched = vouched_for(&path, vouched).await;
    let context = PartitionContext { recovery_point, vouched, foreign: false };
    let (summary, mut found) = partition(&path, context).await?;
    if let Some(id) = summary.topic_id {
        let (first, of) = walk.topic_ids.entry(key.0.clone()).or_insert_with(|| (id, path.clone()));
        if *first != id {
            found.push(Finding {
                severity: Severity::Damage,
                file: path.join(checkpoints::PARTITION_METADATA),
                position: None,
                text: format!("topic id {id}, but {} has {first}", of.display()),
            });
        }
    }
    let problems = tell(&found, output).await?;
    output.line(&summary_line(&path, &summary, problems)).await?;
    walk.problems += problems;
    walk.partitions += 1;
    walk.ends.insert(key, summary.end);
    Ok(())
}

/// Lines of checkpoints against the ends of the logs.
fn check_lines(
    files: &[(PathBuf, Lines)],
    ends: &HashMap<(String, i32), i64>,
    homes: &Homes,
    running: bool,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, lines) in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let bounded =
            [RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_POINTS].contains(&name);
        for (position, line) in lines {
            let who = format!("{}-{}", line.topic, line.partition);
            let (severity, text) = match ends.get(&(line.topic.clone(), line.partition)) {
                // It was moved; the file of where it was is written again later.
                None if homes.contains(&(line.topic.clone(), line.partition)) => continue,
                None => {
                    let text = format!("there is no {who} here, as where it was moved or deleted");
                    (Severity::Note, text)
                }
                Some(end) if line.offset > *end && bounded => {
                    let severity = if running { Severity::Note } else { Severity::Damage };
                    (
                        severity,
                        format!("offset {} of {who} lies beyond its end at {end}", line.offset),
                    )
                }
                Some(_) if line.offset < 0 => {
                    (Severity::Damage, format!("offset {} of {who} is negative", line.offset))
                }
                Some(_) => continue,
            };
            found.push(Finding { severity, file: path.clone(), position: Some(*position), text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A move leaves lines behind, and a crash keeps them from being written again.
    #[test]
    fn a_line_of_a_partition_that_is_in_another_directory_is_no_finding() {
        let line = |partition, offset| {
            (4, checkpoints::PartitionOffset { topic: "t".to_owned(), partition, offset })
        };
        let lines = vec![line(0, 7), line(1, 7), line(2, 7), line(3, 7)];
        let files = [(PathBuf::from("/disk1").join(RECOVERY_POINTS), lines)];
        let key = |partition| ("t".to_owned(), partition);
        let ends = HashMap::from([(key(0), 7), (key(1), 6)]);
        let found = check_lines(&files, &ends, &Homes::from([key(0), key(1), key(2)]), false);
        let told: Vec<(Severity, &str)> =
            found.iter().map(|f| (f.severity, f.text.as_str())).collect();
        assert_eq!(
            told,
            [
                (Severity::Damage, "offset 7 of t-1 lies beyond its end at 6"),
                (Severity::Note, "there is no t-3 here, as where it was moved or deleted"),
            ]
        );
    }
}
