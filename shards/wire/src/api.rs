//! The APIs a client may call: their codes, names, versions and header layouts.

use std::ops::RangeInclusive;

/// What the schema says of one API.
struct Api {
    name: &'static str,
    first: i16,
    last: i16,
    /// The last version is not released: spoken only by agreement.
    unstable: bool,
    request_flexible: Option<i16>,
    response_flexible: Option<i16>,
}

include!(concat!(env!("OUT_DIR"), "/apis.rs"));

impl ApiKey {
    pub fn code(self) -> i16 {
        self as i16
    }

    pub fn name(self) -> &'static str {
        self.api().name
    }

    /// Every version of the schema, released or not.
    pub fn schema_versions(self) -> RangeInclusive<i16> {
        self.api().first..=self.api().last
    }

    /// The released versions: without the last one where that is marked unstable.
    pub fn stable_versions(self) -> RangeInclusive<i16> {
        self.api().first..=self.api().last - i16::from(self.api().unstable)
    }

    /// The first request version with compact lengths and tagged fields.
    pub fn flexible_from(self) -> Option<i16> {
        self.api().request_flexible
    }

    /// 1, or 2 with tagged fields. Versions beyond the schema count as flexible: the layout never
    /// goes back.
    pub fn request_header_version(self, version: i16) -> i16 {
        if self.api().request_flexible.is_some_and(|first| version >= first) { 2 } else { 1 }
    }

    /// 0, or 1 with tagged fields; always 0 for ApiVersions (KIP-511).
    pub fn response_header_version(self, version: i16) -> i16 {
        let flexible = self.api().response_flexible.is_some_and(|first| version >= first);
        i16::from(flexible && self != ApiKey::ApiVersions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back() {
        for &api in ApiKey::ALL {
            assert_eq!(ApiKey::from_code(api.code()), Some(api), "{}", api.name());
            assert!(api.schema_versions().contains(api.stable_versions().end()));
        }
        for retired in 4..=7 {
            assert_eq!(ApiKey::from_code(retired), None);
        }
        assert_eq!(ApiKey::from_code(-1), None);
        assert_eq!(ApiKey::from_code(95), None);
    }

    #[test]
    fn facts_of_some_apis() {
        assert_eq!(ApiKey::Produce.schema_versions(), 3..=13);
        assert_eq!(ApiKey::Fetch.schema_versions(), 4..=18);
        assert_eq!(ApiKey::Fetch.flexible_from(), Some(12));
        assert_eq!(ApiKey::SaslHandshake.flexible_from(), None);
        assert_eq!(ApiKey::InitProducerId.schema_versions(), 0..=6);
        assert_eq!(ApiKey::InitProducerId.stable_versions(), 0..=5);
        assert_eq!(ApiKey::UnregisterController.code(), 94);
        assert_eq!(ApiKey::ListConfigResources.name(), "ListConfigResources");
    }

    #[test]
    fn header_versions() {
        assert_eq!(ApiKey::Metadata.request_header_version(8), 1);
        assert_eq!(ApiKey::Metadata.request_header_version(9), 2);
        assert_eq!(ApiKey::Metadata.response_header_version(8), 0);
        assert_eq!(ApiKey::Metadata.response_header_version(9), 1);
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.response_header_version(4), 0);
        assert_eq!(ApiKey::SaslHandshake.request_header_version(1), 1);
        assert_eq!(ApiKey::SaslHandshake.response_header_version(1), 0);
    }
}
