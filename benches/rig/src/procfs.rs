//! What the kernel says of processes and of this machine, read from /proc.

use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result};

/// User and system time of a process so far, all its threads, ended ones too.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let ticks = process_ticks(&read(&path)?).ok_or(Error::Unreadable(path))?;
    Ok(seconds(ticks))
}

/// Fields 14 and 15; the name before them may hold spaces and brackets.
fn process_ticks(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// What this thread so far waited for a processor while it could have run; `None` where the kernel
/// does not count that.
pub fn thread_waited_seconds() -> Option<f64> {
    waited_seconds(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Nanoseconds on a processor, nanoseconds waiting for one, and how often it got one.
fn waited_seconds(text: &str) -> Option<f64> {
    let waited: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(waited as f64 / 1e9)
}

/// Processor time that the machine spent on anything, and what the hypervisor kept from it.
pub fn machine_cpu_seconds() -> Result<f64> {
    let path = "/proc/stat";
    let ticks = machine_ticks(&read(path)?).ok_or_else(|| Error::Unreadable(path.to_owned()))?;
    Ok(seconds(ticks))
}

/// Of the line `cpu user nice system idle iowait irq softirq steal ...`: all but idle and iowait.
fn machine_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    match *fields.as_slice() {
        [user, nice, system, _, _, irq, softirq, steal, ..] => {
            Some(user + nice + system + irq + softirq + steal)
        }
        _ => None,
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Resident memory of a process in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    pub now: f64,
    pub peak: f64,
}

pub fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    parse_memory(&read(&path)?).ok_or(Error::Unreadable(path))
}

fn parse_memory(text: &str) -> Option<Memory> {
    Some(Memory { now: kibibytes(text, "VmRSS:")?, peak: kibibytes(text, "VmHWM:")? })
}

/// The value, in bytes, of a line such as `VmRSS:  1234 kB`.
fn kibibytes(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let count: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(count * 1024.0)
}

/// What a Java virtual machine still holds after it has collected its garbage, in bytes: the last
/// line of a histogram of its heap, which collects first. `None` if there is no tool to ask it.
pub fn live_heap(pid: u32) -> Option<f64> {
    let asked =
        Command::new("jcmd").args([&pid.to_string(), "GC.class_histogram"]).output().ok()?;
    parse_live_heap(&String::from_utf8_lossy(&asked.stdout))
}

/// Of the line `Total  instances  bytes`.
fn parse_live_heap(text: &str) -> Option<f64> {
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix("Total "))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Bytes that a process has read so far, whether from the page cache or past it: the larger of what
/// its read calls gave and what the device gave, since neither counter knows all.
pub fn bytes_read(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/io");
    parse_bytes_read(&read(&path)?).ok_or(Error::Unreadable(path))
}

fn parse_bytes_read(text: &str) -> Option<f64> {
    Some(io_field(text, "rchar:")?.max(io_field(text, "read_bytes:")?))
}

fn io_field(text: &str, key: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().parse().ok()
}

/// Of those, the bytes that came from the device.
pub fn device_bytes_read(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/io");
    io_field(&read(&path)?, "read_bytes:").ok_or(Error::Unreadable(path))
}

/// Descriptors that a process has open.
pub fn open_files(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(&path).map_err(Error::io(format!("read {path}")))?;
    Ok(entries.count() as f64)
}

/// What a process may have open, and how many mappings: the limits that brokers inherit.
pub fn limits() -> String {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or("unlimited".to_owned(), |count| count.to_string());
    let mappings = read("/proc/sys/vm/max_map_count").unwrap_or_default();
    format!("{files} open files, {} mappings", mappings.trim())
}

/// The processors that this process and the brokers it starts may use, in words.
pub fn cores_allowed() -> String {
    let status = read("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = list.map_or("unknown", str::trim);
    format!("every broker and the client may use the same ones, no others: {list}")
}

/// The machine, in words, for a report.
#[derive(Debug)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_bytes: f64,
    pub kernel: String,
    /// Of the brokers' data: type, device, options.
    pub file_system: String,
}

pub fn machine(data: &Path) -> Result<Machine> {
    let cpus = read("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let memory = kibibytes(&read("/proc/meminfo")?, "MemTotal:");
    let mounts = read("/proc/self/mountinfo")?;
    Ok(Machine {
        processor: model.to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory.unwrap_or(0.0),
        kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        file_system: file_system(&mounts, data).unwrap_or_else(|| "unknown".to_owned()),
    })
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// For example "ext4".
    pub kind: String,
    pub device: String,
    /// MAJOR:MINOR, as sysfs names block devices.
    pub number: String,
    /// Of the mount, then of the file system.
    pub options: String,
}

/// The one that holds a path.
pub fn mount_of(path: &Path) -> Option<Mount> {
    nearest_mount(&read("/proc/self/mountinfo").ok()?, path)
}

fn file_system(mounts: &str, path: &Path) -> Option<String> {
    let Mount { kind, device, options, .. } = nearest_mount(mounts, path)?;
    Some(format!("{kind} on {device} ({options})"))
}

/// The mount whose point is the longest prefix of `path`.
fn nearest_mount(mounts: &str, path: &Path) -> Option<Mount> {
    let mounts = mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (point, options) = (left.get(4)?, left.get(5)?);
        let mount = Mount {
            kind: right.first().copied()?.to_owned(),
            device: right.get(1).copied()?.to_owned(),
            number: left.get(2).copied()?.to_owned(),
            options: format!("{options}; {}", right.get(2)?),
        };
        path.starts_with(point).then_some((point.len(), mount))
    });
    mounts.max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

/// The three load averages.
pub fn load_average() -> String {
    let text = read("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(Error::io(format!("read {path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_odd_name_is_read() {
        let text = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0 9 0";
        assert_eq!(process_ticks(text), Some(100));
        assert_eq!(process_ticks("12 (a"), None);
    }

    #[test]
    fn idle_and_waiting_time_is_not_work() {
        let text = "cpu  1 2 4 1000 1000 8 16 32 0 0\ncpu0 9 9 9 9 9 9 9 9\n";
        assert_eq!(machine_ticks(text), Some(63));
        assert_eq!(machine_ticks("cpu  1 2\n"), None);
    }

    #[test]
    fn memory_is_given_in_bytes() {
        let text = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let expected = Memory { now: 1_048_576.0, peak: 2_097_152.0 };
        assert_eq!(parse_memory(text), Some(expected));
    }

    #[test]
    fn the_heap_is_the_histograms_last_line() {
        let text = " num     #instances         #bytes  class name\n\
                    ----\n   1:   52   4096  [B\nTotal            52           4096\n";
        assert_eq!(parse_live_heap(text), Some(4096.0));
        assert_eq!(parse_live_heap("no such process"), None);
    }

    #[test]
    fn reads_past_the_page_cache_count_as_well() {
        let text = |calls, device| format!("rchar: {calls}\nwchar: 1\nread_bytes: {device}\n");
        assert_eq!(parse_bytes_read(&text(10, 4096)), Some(4096.0));
        assert_eq!(parse_bytes_read(&text(9000, 4096)), Some(9000.0));
        assert_eq!(parse_bytes_read("rchar: 1\n"), None);
    }

    #[test]
    fn the_nearest_mount_is_the_file_system() {
        let mounts = "1 0 0:1 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                      2 1 0:2 / /data rw - xfs /dev/vdb rw,noatime\n\
                      3 1 0:3 / /dat rw - tmpfs none rw\n";
        let found = file_system(mounts, Path::new("/data/run"));
        assert_eq!(found.as_deref(), Some("xfs on /dev/vdb (rw; rw,noatime)"));
        let root = file_system(mounts, Path::new("/home"));
        assert_eq!(root.as_deref(), Some("ext4 on /dev/vda (rw,relatime; rw,discard)"));
    }

    #[test]
    fn this_process_has_memory_and_time() {
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.now > 0.0 && memory.peak >= memory.now);
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        assert!(machine_cpu_seconds().unwrap() > 0.0);
        assert!(open_files(std::process::id()).unwrap() > 0.0);
        assert!(bytes_read(std::process::id()).unwrap() > 0.0);
        assert!(machine(Path::new("/")).unwrap().memory_bytes > 0.0);
    }

    #[test]
    fn the_wait_for_a_processor_is_read() {
        assert_eq!(waited_seconds("700000000 1500000000 12\n"), Some(1.5));
        assert_eq!(waited_seconds("700000000\n"), None);
    }
}
