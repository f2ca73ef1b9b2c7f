//! Whether a TCP address can be listened on, tried by really binding it for a moment.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

/// What binding gave.
#[derive(Debug)]
pub enum PortState {
    Free,
    InUse,
    /// A port below 1024 without the privilege, or a policy.
    Forbidden,
    /// The host is not an address of this machine.
    NotOurs,
    Unknown(std::io::Error),
}

/// Binds and at once releases `address`. Port 0 is always free.
pub fn port_state(address: SocketAddr) -> PortState {
    match TcpListener::bind(address) {
        Ok(_) => PortState::Free,
        Err(error) => match error.kind() {
            ErrorKind::AddrInUse => PortState::InUse,
            ErrorKind::PermissionDenied => PortState::Forbidden,
            ErrorKind::AddrNotAvailable => PortState::NotOurs,
            _ => PortState::Unknown(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_seen_and_a_released_one_is_free() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = holder.local_addr().unwrap();
        assert!(matches!(port_state(address), PortState::InUse));
        drop(holder);
        assert!(matches!(port_state(address), PortState::Free));
    }

    #[test]
    fn a_foreign_address_is_not_ours() {
        // 192.0.2.0/24 is reserved for documentation and never assigned.
        let state = port_state("192.0.2.1:0".parse().unwrap());
        assert!(matches!(state, PortState::NotOurs), "{state:?}");
    }
}
