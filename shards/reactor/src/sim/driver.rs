//! The driver over a simulated machine. All of the machine is in [`State`]; this only translates.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use super::state::State;
use crate::driver::{Completion, Driver, Half, Token, Wait};
use crate::op::{Handle, Op, World};
use crate::time::Instant;
use crate::uring::JobDone;

pub(super) struct SimDriver {
    state: Rc<RefCell<State>>,
}

impl SimDriver {
    pub(super) fn new(state: Rc<RefCell<State>>) -> Self {
        Self { state }
    }
}

impl Driver for SimDriver {
    fn now(&mut self) -> Instant {
        self.state.borrow().clock
    }

    fn wall_clock_ms(&mut self) -> i64 {
        self.state.borrow().wall_clock_ms()
    }

    fn fill_random(&mut self, b: &mut [u8]) {
        let mut state = self.state.borrow_mut();
        for chunk in b.chunks_mut(8) {
            let random = state.dice.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    fn boot_id(&mut self) -> Option<[u8; 16]> {
        Some(self.state.borrow().boot_id())
    }

    fn submit(&mut self, token: Token, op: Op) {
        self.state.borrow_mut().submit(token, op);
    }

    fn cancel(&mut self, token: Token) {
        self.state.borrow_mut().cancel(token);
    }

    fn close(&mut self, raw: i32) {
        self.state.borrow_mut().close(raw);
    }

    fn turn(&mut self, wait: Wait, out: &mut Vec<(Token, Completion)>) -> io::Result<()> {
        let wait = match wait {
            Wait::No => None,
            Wait::Until(deadline) => Some(deadline),
        };
        self.state.borrow_mut().turn(wait, out);
        Ok(())
    }

    fn finish_jobs(&mut self, jobs: &mut Vec<JobDone>, _out: &mut Vec<(Token, Completion)>) {
        debug_assert!(jobs.is_empty(), "a simulated shard has no helper threads");
    }

    fn drain(&mut self, out: &mut Vec<(Token, Completion)>) -> bool {
        self.state.borrow_mut().drain(out);
        true
    }

    fn listen(&mut self, addr: SocketAddr, backlog: u32) -> io::Result<(Handle, SocketAddr)> {
        let mut state = self.state.borrow_mut();
        let raw = state.descriptor();
        let local = state.net.listen(raw, addr, backlog).map_err(io::Error::from_raw_os_error)?;
        Ok((Handle::new(raw, World::Simulated), local))
    }

    fn socket(&mut self, _peer: &SocketAddr) -> io::Result<Handle> {
        let mut state = self.state.borrow_mut();
        let raw = state.descriptor();
        state.net.add_socket(raw);
        Ok(Handle::new(raw, World::Simulated))
    }

    fn local_addr(&mut self, socket: &Handle) -> io::Result<SocketAddr> {
        let state = self.state.borrow();
        state.net.local_addr(socket.raw()).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn shutdown(&mut self, socket: &Handle, half: Half) -> io::Result<()> {
        self.state.borrow_mut().shutdown(socket.raw(), half);
        Ok(())
    }

    fn adopt(&mut self, raw: i32) -> Handle {
        Handle::new(raw, World::Simulated)
    }

    fn device(&mut self, raw: i32) -> u64 {
        self.state.borrow_mut().device(raw)
    }

    fn keep_signal(&mut self) {
        self.state.borrow_mut().terminated = true;
    }

    fn shuffles(&self) -> bool {
        true
    }

    fn pick(&mut self, ready: usize) -> usize {
        self.state.borrow_mut().pick(ready)
    }

    fn observe(&mut self, event: u64) {
        self.state.borrow_mut().note(event);
    }

    fn halted(&self) -> bool {
        self.state.borrow().halted
    }
}
