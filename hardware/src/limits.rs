//! Kernel limits of this process that a broker runs into: open files and locked memory.

use rustix::process::{Rlimit, getrlimit, setrlimit};

/// The limits looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// RLIMIT_NOFILE: sockets plus open segment files.
    OpenFiles,
    /// RLIMIT_MEMLOCK in bytes: counts buffers registered with a ring.
    LockedMemory,
}

/// One limit; `None` is "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

impl Limit {
    /// Whether the soft limit allows `wanted`.
    pub fn allows(&self, wanted: u64) -> bool {
        self.soft.is_none_or(|soft| soft >= wanted)
    }
}

/// Reads a limit.
pub fn limit(resource: Resource) -> Limit {
    let Rlimit { current, maximum } = getrlimit(kernel(resource));
    Limit { soft: current, hard: maximum }
}

/// Raises the soft limit to the hard one, which needs no privilege, and returns the outcome.
pub fn raise_to_hard(resource: Resource) -> std::io::Result<Limit> {
    let before = limit(resource);
    if before.soft == before.hard {
        return Ok(before);
    }
    setrlimit(kernel(resource), Rlimit { current: before.hard, maximum: before.hard })?;
    Ok(limit(resource))
}

fn kernel(resource: Resource) -> rustix::process::Resource {
    match resource {
        Resource::OpenFiles => rustix::process::Resource::Nofile,
        Resource::LockedMemory => rustix::process::Resource::Memlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_reaches_the_hard_limit() {
        let after = raise_to_hard(Resource::OpenFiles).unwrap();
        assert_eq!(after.soft, after.hard);
        assert_eq!(limit(Resource::OpenFiles), after);
    }

    #[test]
    fn unlimited_allows_everything() {
        assert!(Limit { soft: None, hard: None }.allows(u64::MAX));
        assert!(Limit { soft: Some(10), hard: None }.allows(10));
        assert!(!Limit { soft: Some(10), hard: None }.allows(11));
    }
}
