//! What a run was made with and on: tool, machine, disks, brokers, and the stretches of the run.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::procfs;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// For example "corelane bench".
    pub name: String,
    pub version: String,
    /// Of the tool's own source; "unknown" where it was built outside of a repository.
    pub commit: String,
}

impl Tool {
    pub fn here(name: &str) -> Self {
        Tool {
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("RIG_COMMIT").to_owned(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    /// Those that matter to the run: the broker's where it is local and its directories are known.
    pub disks: Vec<Disk>,
}

impl Machine {
    /// This one, with the disks under these directories.
    pub fn here(data: &[&Path]) -> Self {
        let found = procfs::machine(Path::new("/")).ok();
        let (cpu, kernel, memory) = match found {
            Some(machine) => (machine.processor, machine.kernel, machine.memory_bytes),
            None => ("unknown".to_owned(), "unknown".to_owned(), 0.0),
        };
        Machine {
            kernel,
            cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory as u64,
            disks: data.iter().map(|path| Disk::under(path)).collect(),
        }
    }
}

/// What is not known is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// The directory that was asked about.
    pub path: String,
    /// For example "/dev/nvme0n1p2".
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rotational: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file_system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mount_options: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scheduler: Option<String>,
    /// "write back" or "write through", as the kernel says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub write_cache: Option<String>,
    /// Whether the device keeps what is in its cache when power fails; the kernel cannot tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub power_loss_protection: Option<bool>,
    /// What it was made to look like, for example "SATA SSD"; figures of such a disk are no disk's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub emulated: Option<String>,
}

impl Disk {
    /// The disk that holds a directory, as far as mountinfo and sysfs say.
    pub fn under(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut disk = Disk { path: path.display().to_string(), ..Disk::default() };
        let Some(mount) = procfs::mount_of(&path) else { return disk };
        disk.file_system = Some(mount.kind);
        disk.mount_options = Some(mount.options);
        disk.device = Some(mount.device);
        let queue = |folder: &Path| folder.join("queue").is_dir().then(|| folder.to_owned());
        let node = std::fs::canonicalize(format!("/sys/dev/block/{}", mount.number));
        // Of a partition the queue is its disk's.
        let Some(block) = node.ok().and_then(|node| queue(&node).or_else(|| queue(node.parent()?)))
        else {
            return disk;
        };
        let read = |name: &str| {
            let text = std::fs::read_to_string(block.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        disk.model = read("device/model");
        disk.bytes = read("size").and_then(|sectors| Some(sectors.parse::<u64>().ok()? * 512));
        disk.rotational = read("queue/rotational").map(|text| text == "1");
        disk.scheduler = read("queue/scheduler").map(|text| chosen(&text));
        disk.write_cache = read("queue/write_cache");
        disk
    }
}

/// Of `none [mq-deadline] kyber` the one in brackets.
fn chosen(schedulers: &str) -> String {
    let inner = schedulers.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or_else(|| schedulers.to_owned(), |(name, _)| name.to_owned())
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Broker {
    /// What rows call it; one of a kind in the report.
    pub id: String,
    /// As far as it tells: "Corelane", "Apache Kafka", "unknown".
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// HOST:PORT of every node.
    pub addresses: Vec<String>,
    /// Settings that bear on the figures, as DescribeConfigs gives them.
    pub configs: Vec<Named>,
    /// How it was started, what it could use.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

impl Broker {
    pub fn title(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.name),
            None => self.name.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
    pub value: String,
}

impl Named {
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Named { name: name.into(), value: value.into() }
    }
}

/// With the machine's load averages around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leg {
    pub broker: String,
    pub part: String,
    pub seconds: f64,
    pub load_before: String,
    pub load_after: String,
}

/// UTC, RFC 3339, to the second.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

fn rfc3339(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (mut year, mut left) = (1970, days);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for days in months {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_796_030_625), "2026-11-30T09:23:45Z");
        assert_eq!(rfc3339(1_798_761_599), "2026-12-31T23:59:59Z");
    }

    #[test]
    fn the_scheduler_is_the_one_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn this_machines_disk_has_a_file_system() {
        let machine = Machine::here(&[Path::new("/")]);
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && !machine.kernel.is_empty());
        let disk = machine.disks.first().unwrap();
        assert_eq!(disk.path, "/");
        assert!(disk.file_system.as_ref().is_some_and(|name| !name.is_empty()));
    }
}
