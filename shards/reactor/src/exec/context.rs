//! The runtime of the current thread. Set while a shard runs, absent otherwise.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::runtime::Runtime;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
    /// Identity of the current runtime, 0 = none; lets a wake find out where it is in one load.
    static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
}

/// Runs `f` with the current runtime. Calling the facade outside a shard is a programmer error.
pub(crate) fn with<R>(f: impl FnOnce(&Rc<Runtime>) -> R) -> R {
    match try_with(f) {
        Some(r) => r,
        None => panic!("the reactor was used outside a shard"),
    }
}

pub(crate) fn try_with<R>(f: impl FnOnce(&Rc<Runtime>) -> R) -> Option<R> {
    CURRENT.try_with(|c| c.borrow().as_ref().map(f)).ok().flatten()
}

pub(crate) fn current() -> Rc<Runtime> {
    with(Rc::clone)
}

pub(crate) fn is_current(id: u64) -> bool {
    CURRENT_ID.try_with(|c| c.get() == id).unwrap_or(false)
}

/// Makes `runtime` the current one until the guard is dropped.
pub(crate) fn enter(runtime: &Rc<Runtime>) -> Entered {
    CURRENT.with(|c| {
        let mut c = c.borrow_mut();
        assert!(c.is_none(), "a shard is already running on this thread");
        *c = Some(Rc::clone(runtime));
    });
    CURRENT_ID.with(|c| c.set(runtime.shared.id()));
    Entered
}

pub(crate) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT_ID.with(|c| c.set(0));
        let runtime = CURRENT.with(|c| c.borrow_mut().take());
        drop(runtime);
    }
}
