//! What was set aside: whole batches that were safe and lay behind damage.
//!
//! Owns: the list of such files of a log that is open, `<first offset>.log.aside-<ms>`, and their
//! end. Nobody reads them any more; whoever wants what is in them has until the topic's
//! `retention.ms` has passed since they were set aside, or for ever where nothing is deleted by
//! time.

use std::path::Path;
use std::rc::Rc;

use crate::core::Core;
use crate::files::remove_if_there;
use crate::names;

/// One file that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Aside {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Wall-clock time.
    pub(crate) since_ms: i64,
}

impl Aside {
    /// The file of this name, if it was set aside.
    pub(crate) fn of(name: &str, bytes: u64) -> Option<Aside> {
        let (_, since_ms) = names::parse_aside(name)?;
        Some(Aside { name: name.to_owned(), bytes, since_ms })
    }

    pub(crate) fn of_path(path: &Path, bytes: u64) -> Option<Aside> {
        Aside::of(path.file_name()?.to_str()?, bytes)
    }
}

/// Removes what was set aside longer ago than the topic keeps records. By whoever holds the upkeep.
pub(crate) async fn remove_expired(core: &Rc<Core>, now_ms: i64) {
    let expired: Vec<Aside> = {
        let state = core.state.borrow();
        let keeps_ms = state.config.retention_ms;
        if state.aside.is_empty() || !state.config.delete || keeps_ms < 0 {
            return;
        }
        let is_expired = |a: &&Aside| now_ms.saturating_sub(a.since_ms) > keeps_ms;
        state.aside.iter().filter(is_expired).cloned().collect()
    };
    let dir = core.dir();
    for aside in expired {
        match remove_if_there(&dir.join(&aside.name)).await {
            Ok(()) => {
                let bytes = aside.bytes;
                tracing::info!(log = %core.name, bytes, "removed {}, set aside", aside.name);
                core.state.borrow_mut().aside.retain(|other| *other != aside);
            }
            Err(error) => tracing::warn!(log = %core.name, "{} stays: {error}", aside.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_set_aside_is_taken_for_it() {
        let aside = Aside::of("00000000000000000010.log.aside-1700", 7);
        assert_eq!(aside.map(|a| (a.bytes, a.since_ms)), Some((7, 1700)));
        assert_eq!(Aside::of("00000000000000000010.log", 7), None);
        assert_eq!(Aside::of_path(Path::new("/d/t-0/corelane.checkpoint"), 7), None);
    }
}
