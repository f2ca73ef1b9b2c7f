//! How many transactional ids are in which state, and which transactions are open: kept up with
//! every step, so that neither a scrape nor a coordinator that was just loaded has to look at every
//! id.

use std::collections::BTreeSet;

use super::state::{State, Txn};
use crate::Name;

/// A transaction that is not at rest. By its start, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Begun {
    pub started_ms: i64,
    pub id: Name,
}

impl Begun {
    /// Before any other: ids are not empty.
    pub fn before_all() -> Self {
        Begun { started_ms: i64::MIN, id: Name::from("") }
    }
}

#[derive(Debug, Default)]
pub(super) struct Census {
    by_state: [usize; State::ALL.len()],
    pub open: BTreeSet<Begun>,
}

impl Census {
    pub fn enter(&mut self, id: &Name, txn: &Txn) {
        if let Some(count) = self.by_state.get_mut(txn.state as usize) {
            *count += 1;
        }
        if !txn.state.is_at_rest() {
            self.open.insert(Begun { started_ms: txn.started_ms, id: id.clone() });
        }
    }

    pub fn leave(&mut self, id: &Name, txn: &Txn) {
        if let Some(count) = self.by_state.get_mut(txn.state as usize) {
            *count -= 1;
        }
        if !txn.state.is_at_rest() {
            self.open.remove(&Begun { started_ms: txn.started_ms, id: id.clone() });
        }
    }

    pub fn states(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        State::ALL.iter().zip(&self.by_state).map(|(state, count)| (state.name(), *count))
    }
}
