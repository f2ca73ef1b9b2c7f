//! Where the broker listens and what it tells clients.
//!
//! Owns `HOST:PORT` and the rules between listening and advertising; Kafka's `listeners` is read by
//! `meta::config`. Pure: names are resolved by the caller. Shard `s` listens on port + s and is
//! advertised as advertised port + s.

use std::fmt;

/// `HOST:PORT` as written; the host is a name or an address (IPv6 without brackets), empty for
/// "every interface".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

/// Why a text names no usable endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("`{0}` is not HOST:PORT; write for example 127.0.0.1:9092 or [::1]:9092")]
    Malformed(String),
    #[error("`{0}` is not a port; ports run from 1 to 65535")]
    Port(String),
    #[error("{0} shards from port {1} run past port 65535")]
    PastTheEnd(usize, u16),
}

impl Endpoint {
    /// `HOST:PORT`, `[V6]:PORT` or `:PORT`.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let malformed = || EndpointError::Malformed(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        Ok(Endpoint { host: parse_host(host).ok_or_else(malformed)?, port: parse_port(port)? })
    }

    /// `HOST` alone, or any form with a port; the host may not be empty.
    pub fn parse_with_default_port(text: &str, port: u16) -> Result<Self, EndpointError> {
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(Endpoint { host: text.to_owned(), port });
        }
        let portless = text.ends_with(']') || !text.contains(':');
        let endpoint =
            Endpoint::parse(&if portless { format!("{text}:{port}") } else { text.to_owned() })?;
        if endpoint.host.is_empty() {
            return Err(EndpointError::Malformed(text.to_owned()));
        }
        Ok(endpoint)
    }

    /// The endpoint of shard `s` of `shards`.
    pub fn of_shard(&self, shard: usize) -> Option<Endpoint> {
        let port = u16::try_from(usize::from(self.port) + shard).ok()?;
        Some(Endpoint { host: self.host.clone(), port })
    }

    /// Checks that every shard has a port.
    pub fn fits(&self, shards: usize) -> Result<(), EndpointError> {
        match self.of_shard(shards.saturating_sub(1)) {
            Some(_) => Ok(()),
            None => Err(EndpointError::PastTheEnd(shards, self.port)),
        }
    }

    /// Listens on every interface.
    pub fn is_wildcard(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::")
    }

    /// Reachable from this machine only.
    pub fn is_loopback(&self) -> bool {
        let by_address = self.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        by_address || self.host == "localhost"
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What a client elsewhere would run into, said before it does.
pub fn reachability_warning(listen: &Endpoint, advertised: &Endpoint) -> Option<String> {
    if advertised.is_wildcard() {
        return Some(format!(
            "clients are told to connect to {advertised}, which is no address to connect to; \
             name this machine with --advertise"
        ));
    }
    if !listen.is_loopback() && advertised.is_loopback() {
        return Some(format!(
            "clients on other machines can reach {listen}, but are then sent to {advertised}, \
             their own machine; name this one with --advertise"
        ));
    }
    if listen.is_loopback() && !advertised.is_loopback() {
        return Some(format!(
            "clients are sent to {advertised}, but the broker listens on {listen} only; \
             add --listen 0.0.0.0:{} unless something forwards to it",
            listen.port
        ));
    }
    None
}

fn parse_host(host: &str) -> Option<String> {
    let inner = host.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
    match inner {
        Some(inner) => {
            let inner = inner?;
            inner.parse::<std::net::Ipv6Addr>().ok().map(|_| inner.to_owned())
        }
        None => {
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            host.chars().all(good).then(|| host.to_owned())
        }
    }
}

fn parse_port(port: &str) -> Result<u16, EndpointError> {
    let parsed = port.parse::<u16>().ok().filter(|&port| port != 0);
    parsed.ok_or_else(|| EndpointError::Port(port.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Endpoint {
        Endpoint { host: host.into(), port }
    }

    #[test]
    fn endpoints_parse() {
        assert_eq!(Endpoint::parse("127.0.0.1:9092"), Ok(at("127.0.0.1", 9092)));
        assert_eq!(Endpoint::parse("[::1]:9092"), Ok(at("::1", 9092)));
        assert_eq!(Endpoint::parse(":9092"), Ok(at("", 9092)));
        assert_eq!(at("::1", 1).to_string(), "[::1]:1");
        for text in ["9092", "host", "::1:x", "a b:1", "[::1:9092", "[name]:1"] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
        for text in ["h:0", "h:65536", "h:-1", "h:"] {
            assert!(matches!(Endpoint::parse(text), Err(EndpointError::Port(_))), "{text}");
        }
    }

    #[test]
    fn advertised_hosts_may_leave_the_port_out() {
        let parse = |text| Endpoint::parse_with_default_port(text, 9092);
        assert_eq!(parse("kafka.example"), Ok(at("kafka.example", 9092)));
        assert_eq!(parse("kafka.example:19092"), Ok(at("kafka.example", 19092)));
        assert_eq!(parse("fe80::1"), Ok(at("fe80::1", 9092)));
        assert_eq!(parse("[fe80::1]"), Ok(at("fe80::1", 9092)));
        assert_eq!(parse("[fe80::1]:1"), Ok(at("fe80::1", 1)));
        for text in ["", ":9092", "a b", "http://x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shards_count_up_from_the_port() {
        assert_eq!(at("h", 9092).of_shard(3), Some(at("h", 9095)));
        assert!(at("h", 65535).fits(1).is_ok());
        assert_eq!(at("h", 65535).fits(2), Err(EndpointError::PastTheEnd(2, 65535)));
    }

    #[test]
    fn warnings_come_when_clients_elsewhere_would_fail() {
        let warns = |l: &str, a: &str| reachability_warning(&at(l, 1), &at(a, 1)).is_some();
        assert!(!warns("127.0.0.1", "127.0.0.1"));
        assert!(!warns("0.0.0.0", "10.0.0.5"));
        assert!(!warns("::1", "localhost"));
        assert!(warns("0.0.0.0", "localhost"));
        assert!(warns("10.0.0.5", "127.0.0.1"));
        assert!(warns("127.0.0.1", "kafka.example"));
        assert!(warns("0.0.0.0", "0.0.0.0"));
    }
}
