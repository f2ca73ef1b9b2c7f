//! The address that other machines most likely know this one by.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// The source address of the default route, found without sending anything: connecting a UDP socket
/// only makes the kernel choose. `None` without such a route.
pub fn outbound_address() -> Option<IpAddr> {
    // 192.0.2.0/24 is reserved for documentation; any address beyond the local networks would do.
    const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbound_address_is_one_of_ours() {
        // A machine without a default route has none, which is an answer too.
        if let Some(address) = outbound_address() {
            assert!(UdpSocket::bind((address, 0)).is_ok(), "{address}");
        }
    }
}
