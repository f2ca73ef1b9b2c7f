//! The CPUs this process may really use: its affinity mask, cut by the control group's CPU quota.
//!
//! Never: pins a thread (the reactor does that when it starts a shard).

use crate::host::{Host, Rooted, parse_list};
use crate::{HardwareError, cgroup};

/// Usable CPUs and, where the control group sets one, the quota in CPUs (2.5 = two and a half).
#[derive(Debug, Clone, PartialEq)]
pub struct Cpus {
    /// Kernel CPU numbers out of the affinity mask, ascending, never empty.
    pub ids: Vec<usize>,
    pub quota: Option<f64>,
}

impl Cpus {
    /// How many threads can run at the same time: at least 1, a started quota CPU counts whole.
    pub fn parallelism(&self) -> usize {
        let by_quota = self.quota.map_or(usize::MAX, |quota| quota.ceil().max(1.0) as usize);
        self.ids.len().min(by_quota).max(1)
    }

    /// Whether threads may be tied to CPUs: under a quota below the mask the mask is shared with
    /// other containers, which would all be tied to the same first CPUs.
    pub fn pinnable(&self) -> bool {
        self.parallelism() == self.ids.len()
    }
}

/// Reads the affinity mask and the CPU quota of this process.
pub fn usable_cpus() -> Result<Cpus, HardwareError> {
    let mask = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| HardwareError::Affinity(errno.into()))?;
    let ids: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect();
    if ids.is_empty() {
        return Err(HardwareError::NoCpu);
    }
    Ok(Cpus { ids, quota: quota(&Rooted::here()) })
}

/// As [`usable_cpus`], of another machine or process: from its status file.
pub(crate) fn cpus_of(host: &dyn Host) -> Option<Cpus> {
    let status = host.read("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let ids = parse_list(list).filter(|ids| !ids.is_empty())?;
    Some(Cpus { ids, quota: quota(host) })
}

/// The smallest quota on the way up, as every level binds.
fn quota(host: &dyn Host) -> Option<f64> {
    let mut smallest: Option<f64> = None;
    for hierarchy in cgroup::hierarchies(host, "cpu") {
        let found: Vec<f64> = if hierarchy.unified {
            hierarchy.values(host, "cpu.max").filter_map(|text| parse_v2(&text)).collect()
        } else {
            let periods = hierarchy.values(host, "cpu.cfs_period_us");
            let quotas = hierarchy.values(host, "cpu.cfs_quota_us");
            quotas.zip(periods).filter_map(|(quota, period)| ratio(&quota, &period)).collect()
        };
        for quota in found {
            smallest = Some(smallest.map_or(quota, |other| other.min(quota)));
        }
    }
    smallest
}

/// `max 100000` or `150000 100000`.
fn parse_v2(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    ratio(quota, period)
}

/// v1 writes -1 and v2 writes `max` for "no quota"; both end as None.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_texts() {
        assert_eq!(parse_v2("max 100000"), None);
        assert_eq!(parse_v2("150000 100000"), Some(1.5));
        assert_eq!(parse_v2("rubbish"), None);
        assert_eq!(ratio("-1", "100000"), None);
        assert_eq!(ratio("50000", "100000"), Some(0.5));
        assert_eq!(ratio("50000", "0"), None);
    }

    #[test]
    fn parallelism_is_the_smaller_of_mask_and_quota() {
        let cpus = |count: usize, quota| Cpus { ids: (0..count).collect(), quota };
        assert_eq!(cpus(8, None).parallelism(), 8);
        assert_eq!(cpus(8, Some(1.5)).parallelism(), 2);
        assert_eq!(cpus(8, Some(0.2)).parallelism(), 1);
        assert_eq!(cpus(2, Some(16.0)).parallelism(), 2);
        assert!(cpus(8, None).pinnable());
        assert!(!cpus(8, Some(1.5)).pinnable());
    }

    #[test]
    fn this_machine_has_a_cpu() {
        let cpus = usable_cpus().unwrap();
        assert!(cpus.parallelism() >= 1);
        assert!(cpus.ids.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
