//! Reading values: text to number, list or switch, with the checks of a key.
//! The same reading is used for files, for flags, for what clients set and for the typed configs.

use super::error::ConfigError;
use super::key::{Check, Key, Kind};

/// Checks a text against kind and bounds of its key.
pub(super) fn check(key: &Key, text: &str) -> Result<(), ConfigError> {
    let text = text.trim();
    match key.kind {
        Kind::Bool => boolean(text).map(|_| ()).ok_or_else(|| {
            ConfigError::invalid(key.name, text, "Expected value to be either true or false")
        }),
        Kind::Int | Kind::Long | Kind::Short => check_number(key, text),
        Kind::Double => check_real(key, text),
        Kind::List => check_list(key, text),
        Kind::String => check_string(key, text),
        Kind::Class | Kind::Password => Ok(()),
    }
}

/// `true` or `false` in any case.
pub fn boolean(text: &str) -> Option<bool> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

/// The items of a comma-separated list, trimmed; an empty text is an empty list.
pub fn list(text: &str) -> Vec<&str> {
    if text.trim().is_empty() { Vec::new() } else { text.split(',').map(str::trim).collect() }
}

/// A whole number that fits the kind.
pub(super) fn number(kind: Kind, text: &str) -> Option<i64> {
    let n: i64 = text.trim().parse().ok()?;
    match kind {
        Kind::Int => i32::try_from(n).ok().map(i64::from),
        Kind::Short => i16::try_from(n).ok().map(i64::from),
        _ => Some(n),
    }
}

fn check_number(key: &Key, text: &str) -> Result<(), ConfigError> {
    let fail = |reason: String| Err(ConfigError::invalid(key.name, text, reason));
    let Some(n) = number(key.kind, text) else {
        return fail(format!("Not a number of type {}", key.kind.name()));
    };
    match key.check {
        Check::AtLeast(min) | Check::Between(min, _) if n < min => {
            fail(format!("Value must be at least {min}"))
        }
        Check::Between(_, max) if n > max => fail(format!("Value must be no more than {max}")),
        Check::BetweenOr(min, max, or) if n != or && !(min..=max).contains(&n) => {
            fail(format!("Value must be between {min} and {max} or equal to {or}"))
        }
        _ => Ok(()),
    }
}

fn check_real(key: &Key, text: &str) -> Result<(), ConfigError> {
    let fail = |reason: String| Err(ConfigError::invalid(key.name, text, reason));
    let value: f64 = match text.parse() {
        Ok(value) => value,
        Err(_) => return fail("Not a number of type DOUBLE".into()),
    };
    match key.check {
        _ if value.is_nan() => fail("Not a number of type DOUBLE".into()),
        Check::RealBetween(min, _) if value < min => fail(format!("Value must be at least {min}")),
        Check::RealBetween(_, max) if value > max => {
            fail(format!("Value must be no more than {max}"))
        }
        _ => Ok(()),
    }
}

fn check_string(key: &Key, text: &str) -> Result<(), ConfigError> {
    let fail = |reason: String| Err(ConfigError::invalid(key.name, text, reason));
    match key.check {
        Check::OneOf(values) if !values.contains(&text) => {
            fail(format!("String must be one of: {}", values.join(", ")))
        }
        Check::OneOfAnyCase(values) if !values.iter().any(|v| v.eq_ignore_ascii_case(text)) => {
            fail(format!("String must be one of (case insensitive): {}", values.join(", ")))
        }
        Check::OffsetReset if !is_offset_reset(text) => fail(
            "Invalid value for auto.offset.reset; it must be latest, earliest or \
             by_duration:PnDTnHnMn.nS"
                .into(),
        ),
        _ => Ok(()),
    }
}

fn check_list(key: &Key, text: &str) -> Result<(), ConfigError> {
    let items = list(text);
    match key.check {
        Check::EachOf(values) => match items.iter().find(|item| !values.contains(item)) {
            Some(item) => Err(ConfigError::invalid(
                key.name,
                *item,
                format!("String must be one of: {}", values.join(", ")),
            )),
            None => Ok(()),
        },
        Check::ThrottledReplicas if !are_throttled_replicas(&items) => Err(ConfigError::invalid(
            key.name,
            format!("[{}]", items.join(", ")),
            format!(
                "{} must be the literal '*' or a list of replicas in the following format: \
                 [partitionId]:[brokerId],[partitionId]:[brokerId],...",
                key.name
            ),
        )),
        _ => Ok(()),
    }
}

fn are_throttled_replicas(items: &[&str]) -> bool {
    let is_pair = |item: &&str| {
        let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        item.split_once(':').is_some_and(|(p, b)| all_digits(p) && all_digits(b))
    };
    items == ["*"] || items.iter().all(is_pair)
}

fn is_offset_reset(text: &str) -> bool {
    match text.strip_prefix("by_duration:") {
        Some(duration) => is_duration(duration),
        None => text == "latest" || text == "earliest",
    }
}

/// `PnDTnHnMn.nS` with at least one part and in this order.
fn is_duration(text: &str) -> bool {
    let Some(body) = text.strip_prefix(['P', 'p']) else { return false };
    let upper = body.to_ascii_uppercase();
    let (days, time) = match upper.split_once('T') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return false,
        None => (upper.as_str(), ""),
    };
    let mut parts = 0;
    let mut take = |rest: &str, unit: char, fraction: bool| -> Option<String> {
        let Some((number, after)) = rest.split_once(unit) else { return Some(rest.to_string()) };
        let whole = number.bytes().all(|b| b.is_ascii_digit() || (fraction && b == b'.'));
        if number.is_empty() || !whole || number.parse::<f64>().is_err() {
            return None;
        }
        parts += 1;
        Some(after.to_string())
    };
    let Some(rest) = take(days, 'D', false) else { return false };
    if !rest.is_empty() {
        return false;
    }
    let mut rest = time.to_string();
    for (unit, fraction) in [('H', false), ('M', false), ('S', true)] {
        match take(&rest, unit, fraction) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty() && parts > 0
}

#[cfg(test)]
mod tests {
    use super::super::key::Scope;
    use super::super::keys::find;

    /// Values that clients set, with what Apache Kafka 4.4.0 answered to the same.
    #[test]
    fn values_pass_or_fail_as_in_kafka() {
        let table = "
            retention.ms | -1 | ok
            retention.ms | 77 | ok
            retention.ms | abc | Invalid value abc for configuration retention.ms: Not a number of type LONG
            retention.ms | -5 | Invalid value -5 for configuration retention.ms: Value must be at least -1
            cleanup.policy | nope | Invalid value nope for configuration cleanup.policy: String must be one of: compact, delete
            cleanup.policy | compact,delete | ok
            cleanup.policy | compact,compact | ok
            cleanup.policy | | ok
            segment.bytes | 1000 | Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576
            segment.bytes | 99999999999 | Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT
            preallocate | TRUE | ok
            preallocate | yes | Invalid value yes for configuration preallocate: Expected value to be either true or false
            min.cleanable.dirty.ratio | 0.25 | ok
            min.cleanable.dirty.ratio | 1.5 | Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1
            min.cleanable.dirty.ratio | NaN | Invalid value NaN for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE
            compression.gzip.level | -1 | ok
            compression.gzip.level | 0 | Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1
            leader.replication.throttled.replicas | * | ok
            leader.replication.throttled.replicas | 0:1, 12:30 | ok
            leader.replication.throttled.replicas | x | Invalid value [x] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...
            leader.replication.throttled.replicas | 0:1,* | Invalid value [0:1, *] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...
            min.insync.replicas | 0 | Invalid value 0 for configuration min.insync.replicas: Value must be at least 1
            record.validation | lax | Invalid value lax for configuration record.validation: String must be one of: relaxed, strict
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut cells = line.splitn(3, '|').map(str::trim);
            let (name, value, expected) =
                (cells.next().unwrap(), cells.next().unwrap(), cells.next().unwrap());
            let key = find(Scope::Topic, name).unwrap();
            let got = key.validate(value).map_or_else(|e| e.to_string(), |()| "ok".into());
            assert_eq!(got, expected, "{line}");
        }
    }

    #[test]
    fn offset_resets_are_read_whole() {
        let key = find(Scope::Group, "share.auto.offset.reset").unwrap();
        for good in ["latest", "earliest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S"] {
            assert!(key.validate(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "none",
            "by_duration:",
            "by_duration:P",
            "by_duration:PT",
            "by_duration:1H",
            "by_duration:PT1M1H",
            "by_duration:PTxS",
        ] {
            assert!(key.validate(bad).is_err(), "{bad}");
        }
    }
}
