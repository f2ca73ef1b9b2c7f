//! How much memory this process may use: the machine's total, cut by control-group limits.

use std::path::Path;

use crate::host::{Host, Rooted};
use crate::{HardwareError, cgroup};

const MEMINFO: &str = "/proc/meminfo";

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// The smallest control-group limit, where there is one below the total.
    pub limit: Option<u64>,
}

impl Memory {
    /// What this process may use at most.
    pub fn usable(&self) -> u64 {
        self.limit.map_or(self.total, |limit| limit.min(self.total))
    }
}

/// Reads the total and every limit that binds this process.
pub fn memory() -> Result<Memory, HardwareError> {
    memory_of(&Rooted::here())
}

/// As [`memory`], of another machine.
pub(crate) fn memory_of(host: &dyn Host) -> Result<Memory, HardwareError> {
    let text = host
        .read(MEMINFO)
        .map_err(|source| HardwareError::Read { path: MEMINFO.into(), source })?;
    let total = parse_total(&text)
        .ok_or_else(|| HardwareError::NoMemoryTotal { path: Path::new(MEMINFO).into() })?;
    let limits = cgroup::hierarchies(host, "memory").into_iter().flat_map(|hierarchy| {
        let file = if hierarchy.unified { "memory.max" } else { "memory.limit_in_bytes" };
        hierarchy.values(host, file).collect::<Vec<_>>()
    });
    let limit = limits.filter_map(|text| text.parse::<u64>().ok()).min();
    // v1 writes a number near 2^63 for "no limit".
    Ok(Memory { total, limit: limit.filter(|&limit| limit < total) })
}

fn parse_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_read_from_meminfo() {
        assert_eq!(parse_total("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16384));
        assert_eq!(parse_total("MemFree: 1 kB\n"), None);
        assert_eq!(parse_total("MemTotal: lots kB\n"), None);
    }

    #[test]
    fn the_limit_binds_only_below_the_total() {
        assert_eq!(Memory { total: 100, limit: Some(40) }.usable(), 40);
        assert_eq!(Memory { total: 100, limit: None }.usable(), 100);
        let real = memory().unwrap();
        assert!(real.usable() > 0 && real.usable() <= real.total);
    }
}
