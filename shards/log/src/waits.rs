//! The futures of those who wait for a log.
//!
//! Owns: waiting until an offset is written or visible, and until anything changes. Each future
//! looks at the state at every poll and registers only if it must wait, so no wake is lost; a log
//! that goes offline ends every wait.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::core::{Core, LogState, State};
use crate::error::LogError;
use crate::waiters::{Ticket, Waiters};

#[derive(Clone, Copy)]
enum List {
    Visible,
    Written,
    Change,
}

/// A place in one of the lists, given back when the future is dropped.
struct Place {
    core: Rc<Core>,
    list: List,
    ticket: Ticket,
}

impl Place {
    fn new(core: &Rc<Core>, list: List) -> Place {
        Place { core: Rc::clone(core), list, ticket: Ticket::default() }
    }

    fn register(&mut self, at: i64, waker: &Waker) {
        let core = Rc::clone(&self.core);
        let mut state = core.state.borrow_mut();
        list(&mut state, self.list).register(&mut self.ticket, at, waker);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.core.state.borrow_mut();
        list(&mut state, self.list).release(&mut self.ticket);
    }
}

fn list(state: &mut State, list: List) -> &mut Waiters {
    match list {
        List::Visible => &mut state.wait_visible,
        List::Written => &mut state.wait_written,
        List::Change => &mut state.wait_change,
    }
}

impl Core {
    /// Until every batch below `offset` is as durable as the topic promises.
    pub(crate) async fn acknowledged(self: &Rc<Self>, offset: i64) -> Result<(), LogError> {
        self.wait(offset, List::Visible, |state| state.visible_end).await
    }

    /// Until every batch below `offset` is in its file.
    pub(crate) async fn written(self: &Rc<Self>, offset: i64) -> Result<(), LogError> {
        self.wait(offset, List::Written, |state| state.written_end).await
    }

    async fn wait(
        self: &Rc<Self>,
        offset: i64,
        list: List,
        reached: impl Fn(&State) -> i64,
    ) -> Result<(), LogError> {
        let mut place = Place::new(self, list);
        poll_fn(move |cx| {
            {
                let state = place.core.state.borrow();
                if reached(&state) >= offset {
                    return Poll::Ready(Ok(()));
                }
                match &state.phase {
                    LogState::Poisoned(error) => return Poll::Ready(Err(error.clone().into())),
                    LogState::Closed => {
                        return Poll::Ready(Err(LogError::Closed(place.core.name.clone())));
                    }
                    LogState::Online if offset > state.log_end() => {
                        let end = state.log_end();
                        return Poll::Ready(Err(LogError::BeyondEnd { offset, end }));
                    }
                    LogState::Online => {}
                }
            }
            place.register(offset, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Resolves at the first change after the call, even if that comes before the first poll.
    pub(crate) fn changed(self: &Rc<Self>) -> impl Future<Output = ()> + Unpin + use<> {
        let seen = self.state.borrow().version;
        let mut place = Place::new(self, List::Change);
        poll_fn(move |cx| {
            if place.core.state.borrow().version != seen {
                return Poll::Ready(());
            }
            place.register(0, cx.waker());
            Poll::Pending
        })
    }
}
