//! The registry: every key that Corelane knows, by section, and how to find one.
//! One static table, built once; it never changes and holds no values.

mod group;
mod groups;
mod new_groups;
mod other;
mod own;
mod replication;
mod security;
mod server;
mod storage;
mod topic;

use std::sync::LazyLock;

use ahash::AHashMap;

use super::key::{Key, Scope, Section};

/// Sections of a scope in the order in which the documentation shows them.
pub fn sections(scope: Scope) -> &'static [Section] {
    match scope {
        Scope::Topic => &[topic::TOPIC],
        Scope::Group => &[group::GROUP],
        Scope::ClientMetrics => &[group::CLIENT_METRICS],
        Scope::Broker => &[
            own::OWN,
            server::IDENTITY,
            server::LISTENERS,
            storage::TOPICS,
            storage::LOG,
            replication::FETCH,
            replication::REPLICATION,
            replication::QUORUM,
            groups::OFFSETS,
            groups::TRANSACTIONS,
            new_groups::NEWGROUPS,
            security::SECURITY,
            security::SASL,
            other::QUOTAS,
            other::TIERED,
        ],
    }
}

/// Every topic key, by name.
pub fn topic_keys() -> &'static [Key] {
    &TABLE.topic
}

/// Every broker key, by name.
pub fn broker_keys() -> &'static [Key] {
    &TABLE.broker
}

/// Every key of the dynamic group resource, by name.
pub fn group_keys() -> &'static [Key] {
    &TABLE.group
}

/// Every key of a client metrics subscription, by name.
pub fn client_metrics_keys() -> &'static [Key] {
    &TABLE.client_metrics
}

/// The keys of one scope, by name.
pub fn keys(scope: Scope) -> &'static [Key] {
    match scope {
        Scope::Topic => topic_keys(),
        Scope::Broker => broker_keys(),
        Scope::Group => group_keys(),
        Scope::ClientMetrics => client_metrics_keys(),
    }
}

/// The key of this name, if the scope has it.
///
/// Broker keys may carry `listener.name.<listener>.` before a TLS or SASL key; such a name finds
/// the key behind the prefix.
pub fn find(scope: Scope, name: &str) -> Option<&'static Key> {
    let index = TABLE.index.get(&(scope, name)).copied();
    match index {
        Some(at) => keys(scope).get(at),
        None if scope == Scope::Broker => listener_key(name),
        None => None,
    }
}

/// The known name most like this one, in any scope, if one is near enough to be meant.
pub fn nearest(name: &str) -> Option<&'static str> {
    let all = [Scope::Broker, Scope::Topic, Scope::Group, Scope::ClientMetrics];
    all.iter().filter_map(|scope| nearest_in(*scope, name)).min_by_key(|n| edit_distance(name, n))
}

/// The known name of this scope most like this one, if one is near enough to be meant.
pub fn nearest_in(scope: Scope, name: &str) -> Option<&'static str> {
    // One slip in about four letters, at least two, is a typing error; more is another word.
    let limit = (name.chars().count() / 4).max(2);
    keys(scope)
        .iter()
        .filter(|key| !key.hidden)
        .map(|key| (edit_distance(name, key.name), key.name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

struct Table {
    topic: Vec<Key>,
    broker: Vec<Key>,
    group: Vec<Key>,
    client_metrics: Vec<Key>,
    index: AHashMap<(Scope, &'static str), usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut index = AHashMap::new();
    let mut sorted = |scope: Scope| {
        let mut keys: Vec<Key> =
            sections(scope).iter().flat_map(|s| s.keys.iter().copied()).collect();
        keys.sort_by_key(|key| key.name);
        for (at, key) in keys.iter().enumerate() {
            index.insert((scope, key.name), at);
        }
        keys
    };
    let topic = sorted(Scope::Topic);
    let broker = sorted(Scope::Broker);
    let group = sorted(Scope::Group);
    let client_metrics = sorted(Scope::ClientMetrics);
    Table { topic, broker, group, client_metrics, index }
});

fn listener_key(name: &str) -> Option<&'static Key> {
    let rest = name.strip_prefix("listener.name.")?;
    let (listener, mut key) = rest.split_once('.')?;
    if listener.is_empty() {
        return None;
    }
    // SASL keys may also name the mechanism: listener.name.<listener>.<mechanism>.sasl.jaas.config
    if !key.starts_with("ssl.") && !key.starts_with("sasl.") {
        key = key.split_once('.')?.1;
    }
    if !key.starts_with("ssl.") && !key.starts_with("sasl.") {
        return None;
    }
    TABLE.index.get(&(Scope::Broker, key)).and_then(|at| TABLE.broker.get(*at))
}

/// Letters to insert, delete, replace or swap with their neighbour to turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(from != to);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_slips() {
        for (a, b, distance) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("", "ab", 2),
            ("retention.ms", "retenton.ms", 1),
            ("retention.ms", "retnetion.ms", 1),
            ("flush.ms", "flush.messages", 6),
        ] {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
    }

    #[test]
    fn nearest_finds_what_was_meant_and_only_that() {
        assert_eq!(nearest("num.partition"), Some("num.partitions"));
        assert_eq!(nearest("retention.mss"), Some("retention.ms"));
        assert_eq!(nearest("log.dris"), Some("log.dirs"));
        assert_eq!(nearest("wirte.caching"), Some("write.caching"));
        assert_eq!(nearest("completely.different.thing"), None);
        assert_eq!(nearest_in(Scope::Topic, "num.partitions"), None);
    }

    #[test]
    fn names_are_unique_and_synonyms_exist() {
        for scope in [Scope::Topic, Scope::Broker, Scope::Group, Scope::ClientMetrics] {
            for pair in keys(scope).windows(2) {
                assert!(pair[0].name < pair[1].name, "{} twice", pair[0].name);
            }
            for key in keys(scope) {
                assert_eq!(find(scope, key.name).map(|k| k.name), Some(key.name));
                for synonym in key.synonyms {
                    let found = find(Scope::Broker, synonym).map(|k| k.name);
                    assert_eq!(found, Some(*synonym), "synonym of {}", key.name);
                }
            }
        }
    }

    #[test]
    fn every_key_has_a_doc_and_a_default_that_passes_its_own_check() {
        for scope in [Scope::Topic, Scope::Broker, Scope::Group, Scope::ClientMetrics] {
            for key in keys(scope) {
                assert!(key.doc.ends_with('.'), "{} has no whole sentence", key.name);
                if let Some(default) = key.default {
                    assert_eq!(key.validate(default), Ok(()), "{}", key.name);
                }
            }
        }
    }

    #[test]
    fn listener_prefixes_lead_to_the_key_behind_them() {
        let name = |n: &str| find(Scope::Broker, n).map(|k| k.name);
        assert_eq!(
            name("listener.name.internal.ssl.keystore.location"),
            Some("ssl.keystore.location")
        );
        assert_eq!(
            name("listener.name.x.scram-sha-256.sasl.jaas.config"),
            Some("sasl.jaas.config")
        );
        assert_eq!(name("listener.name.x.num.partitions"), None);
        assert_eq!(name("listener.name..ssl.keystore.location"), None);
        assert_eq!(name("listener.name.x"), None);
    }
}
