//! Making a ring: the flags we want, what we do without, and errors that name the remedy.

use std::io;
use std::sync::Once;

use io_uring::{IoUring, Probe, opcode};

pub(super) const ENTRIES_MIN: u32 = 32;
const ENTRIES_MAX: u32 = 4096;

/// Completion entries per submission entry. An overflow is kept by the kernel, only slower.
const COMPLETIONS_PER_SUBMISSION: u32 = 4;

pub(super) struct Ring {
    pub(super) uring: IoUring,
    pub(super) supports: Supports,
}

/// Operations newer than the oldest kernel we run on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supports {
    pub(super) set_len: bool,
    pub(super) peer_wake: bool,
}

/// A ring of about `entries`, smaller if memory is short.
pub(super) fn create(entries: u32) -> io::Result<Ring> {
    let mut entries = entries.clamp(ENTRIES_MIN, ENTRIES_MAX).next_power_of_two();
    let uring = loop {
        match build(entries) {
            Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && entries > ENTRIES_MIN => {
                entries /= 2;
            }
            other => break other.map_err(explain)?,
        }
    };
    let supports = probe(&uring)?;
    crate::workers::allow(&uring);
    Ok(Ring { uring, supports })
}

fn build(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_clamp()
        .setup_submit_all()
        .setup_cqsize(entries * COMPLETIONS_PER_SUBMISSION)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag();
    builder.build(entries)
}

fn probe(uring: &IoUring) -> io::Result<Supports> {
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe)?;
    let required = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
        opcode::OpenAt::CODE,
        opcode::Close::CODE,
        opcode::Statx::CODE,
        opcode::RenameAt::CODE,
        opcode::UnlinkAt::CODE,
        opcode::MkDirAt::CODE,
        opcode::Accept::CODE,
        opcode::Connect::CODE,
        opcode::Recv::CODE,
        opcode::Send::CODE,
        opcode::SendMsg::CODE,
        opcode::PollAdd::CODE,
        opcode::AsyncCancel::CODE,
    ];
    if !required.iter().all(|&code| probe.is_supported(code)) {
        return Err(too_old());
    }
    Ok(Supports {
        set_len: probe.is_supported(opcode::Ftruncate::CODE),
        peer_wake: probe.is_supported(opcode::MsgRingData::CODE),
    })
}

fn too_old() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "this kernel's io_uring is too old: Linux 6.1 or newer is needed",
    )
}

fn explain(e: io::Error) -> io::Error {
    let remedy = match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is switched off: set kernel.io_uring_disabled=0, or allow the io_uring calls \
             in the container's seccomp profile"
        }
        Some(libc::ENOSYS) => "this kernel (or container) has no io_uring: Linux 6.1 is needed",
        Some(libc::EINVAL) => return too_old(),
        Some(libc::ENOMEM) => {
            "not enough locked memory for a ring: raise the memlock limit (ulimit -l)"
        }
        Some(libc::EMFILE | libc::ENFILE) => "no descriptor is free for a ring: raise ulimit -n",
        _ => return e,
    };
    io::Error::new(e.kind(), format!("{remedy} ({e})"))
}

/// Says once per process that an operation goes to the helper thread.
pub(super) fn note_fallback(what: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::info!(what, "operation is missing in this kernel's io_uring"));
}
