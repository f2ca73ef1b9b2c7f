//! Sockets that need no waiting: making, binding, shutting down, and addresses in the kernel's form.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, bind, getsockname, listen, shutdown,
    socket_with, sockopt,
};

use crate::driver::Half;

/// A listening socket. No SO_REUSEPORT: a second process on the port must fail, not share it.
pub(crate) fn listener(addr: SocketAddr, backlog: u32) -> io::Result<(RawFd, SocketAddr)> {
    let socket = stream(&addr)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &addr)?;
    listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let local = name(&socket)?;
    Ok((socket.into_raw_fd(), local))
}

/// A socket for a connection to `peer`, not connected yet.
pub(crate) fn client(peer: &SocketAddr) -> io::Result<RawFd> {
    Ok(stream(peer)?.into_raw_fd())
}

fn stream(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Accepted connections inherit this from their listener.
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

pub(crate) fn local_addr(raw: RawFd) -> io::Result<SocketAddr> {
    // SAFETY: the caller's handle keeps the descriptor open for the length of this call.
    name(unsafe { BorrowedFd::borrow_raw(raw) })
}

fn name(socket: impl std::os::fd::AsFd) -> io::Result<SocketAddr> {
    let any = getsockname(socket)?;
    SocketAddr::try_from(any).map_err(|_| io::ErrorKind::InvalidData.into())
}

pub(crate) fn end(raw: RawFd, half: Half) -> io::Result<()> {
    let how = match half {
        Half::Write => Shutdown::Write,
        Half::Both => Shutdown::Both,
    };
    // SAFETY: the caller's handle keeps the descriptor open for the length of this call.
    Ok(shutdown(unsafe { BorrowedFd::borrow_raw(raw) }, how)?)
}

/// Writes `addr` into `storage` and returns the length the kernel wants.
pub(crate) fn encode(addr: &SocketAddr, storage: &mut libc::sockaddr_storage) -> libc::socklen_t {
    let at: *mut libc::sockaddr_storage = storage;
    match addr {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger and at least as aligned as any address in it.
            unsafe { at.cast::<libc::sockaddr_in>().write(name) };
            mem::size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { at.cast::<libc::sockaddr_in6>().write(name) };
            mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// Reads the address that the kernel wrote into `storage`.
pub(crate) fn decode(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at: *const libc::sockaddr_storage = storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address is in the storage.
            let name = unsafe { at.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { at.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn an_address_survives_the_kernel_form() {
        for text in ["127.0.0.1:9092", "[::1]:65535", "[fe80::1%7]:1"] {
            let addr = text.parse().unwrap();
            // SAFETY: an all-zero sockaddr_storage is valid.
            let mut storage = unsafe { std::mem::zeroed() };
            encode(&addr, &mut storage);
            assert_eq!(decode(&storage), Some(addr));
        }
    }
}
