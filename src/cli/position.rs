//! Where `consume` reads: `--from` and `TOPIC[:PARTITIONS]`.
//!
//! Pure. Times are milliseconds since 1970; "ago" needs the caller's clock.

use std::str::FromStr;

/// `--from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    Earliest,
    Latest,
    Offset(i64),
    /// So many records before the end of each partition.
    Last(i64),
    /// The first record at or after this time.
    Time(i64),
    /// The first record not older than this many milliseconds.
    Ago(i64),
}

/// `TOPIC` or `TOPIC:0,2,5-7`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPartitions {
    pub topic: String,
    /// Ascending, without repeats; empty for all.
    pub partitions: Vec<i32>,
}

const MS_PER_DAY: i64 = 86_400_000;
/// A range such as 0-99999 is fine, 0-999999999 is a slip.
const MAX_PARTITIONS: i32 = 1_000_000;

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "earliest" | "beginning" => return Ok(Position::Earliest),
            "latest" | "end" => return Ok(Position::Latest),
            _ => {}
        }
        if let Some(count) = text.strip_prefix('-') {
            let count = count.parse().ok().filter(|&n: &i64| n > 0);
            return count.map(Position::Last).ok_or_else(|| unknown(text));
        }
        if let Some(ms) = text.strip_prefix('@') {
            let ms = ms.parse().ok().filter(|&ms: &i64| ms >= 0);
            return ms.map(Position::Time).ok_or_else(|| unknown(text));
        }
        if let Ok(offset) = text.parse::<i64>() {
            return Ok(Position::Offset(offset));
        }
        if let Some(ms) = parse_age(text) {
            return Ok(Position::Ago(ms));
        }
        parse_time(text).map(Position::Time).ok_or_else(|| unknown(text))
    }
}

fn unknown(text: &str) -> String {
    format!(
        "`{text}` is not a position; use earliest, latest, an offset (1000), the last N (-10), \
         an age (15m), a time (2026-08-21T10:00:00Z) or @ with milliseconds since 1970"
    )
}

/// `90s`, `15m`, `2h`, `3d`.
fn parse_age(text: &str) -> Option<i64> {
    let unit_ms = match text.chars().last()? {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => MS_PER_DAY,
        _ => return None,
    };
    let number: i64 = text.get(..text.len() - 1)?.parse().ok()?;
    number.checked_mul(unit_ms).filter(|&ms| ms >= 0)
}

/// `2026-08-21`, `2026-08-21T10:00:00`, with `.250` and `Z` or `+02:00`; without a zone it is UTC.
fn parse_time(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 {
        return None;
    }
    let days = days_since_1970(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?;
    let in_day = match time {
        Some(time) => parse_time_of_day(time)?,
        None => 0,
    };
    Some(days * MS_PER_DAY + in_day).filter(|&ms| ms >= 0)
}

fn parse_time_of_day(text: &str) -> Option<i64> {
    let (clock, zone_minutes) = match text.find(['Z', 'z', '+', '-']) {
        None => (text, 0),
        Some(at) => {
            let (clock, zone) = text.split_at(at);
            if zone.eq_ignore_ascii_case("z") {
                (clock, 0)
            } else {
                let sign = if zone.starts_with('-') { -1 } else { 1 };
                let (hours, minutes) = zone.get(1..)?.split_once(':')?;
                let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
                if !(0..=18).contains(&hours) || !(0..60).contains(&minutes) {
                    return None;
                }
                (clock, sign * (hours * 60 + minutes))
            }
        }
    };
    let mut parts = clock.split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next().unwrap_or("0").parse().ok()?;
    let fits = (0..24).contains(&hours)
        && (0..60).contains(&minutes)
        && (0.0..60.0).contains(&seconds)
        && parts.next().is_none();
    let minutes = hours * 60 + minutes - zone_minutes;
    fits.then_some(minutes * 60_000 + (seconds * 1000.0).round() as i64)
}

/// Proleptic Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    let length: i64 = *lengths.get(index)?;
    if !(1..=length).contains(&day) || year < 1970 {
        return None;
    }
    let before = year - 1;
    let leap_days = |y: i64| y / 4 - y / 100 + y / 400;
    let whole_years = (year - 1970) * 365 + leap_days(before) - leap_days(1969);
    Some(whole_years + lengths.iter().take(index).sum::<i64>() + day - 1)
}

impl FromStr for TopicPartitions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (topic, list) = match text.split_once(':') {
            Some((topic, list)) => (topic, Some(list)),
            None => (text, None),
        };
        if topic.is_empty() {
            return Err("the topic name is missing".to_owned());
        }
        let mut partitions = Vec::new();
        for part in list.into_iter().flat_map(|list| list.split(',')) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let number = text.parse().ok().filter(|&n: &i32| (0..MAX_PARTITIONS).contains(&n));
                number.ok_or_else(|| format!("`{part}` is not a partition; write t:0,2,5-7"))
            };
            partitions.extend(number(from)?..=number(to)?);
        }
        if list.is_some() && partitions.is_empty() {
            return Err(format!("`{text}` names no partition; write t:0,2,5-7"));
        }
        partitions.sort_unstable();
        partitions.dedup();
        Ok(TopicPartitions { topic: topic.to_owned(), partitions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        let table = [
            ("earliest", Position::Earliest),
            ("end", Position::Latest),
            ("0", Position::Offset(0)),
            ("1000", Position::Offset(1000)),
            ("-5", Position::Last(5)),
            ("@1700000000000", Position::Time(1_700_000_000_000)),
            ("15m", Position::Ago(900_000)),
            ("1970-01-02", Position::Time(MS_PER_DAY)),
            ("2024-02-29T12:30:00Z", Position::Time(1_709_209_800_000)),
            ("2024-02-29T14:30:00.250+02:00", Position::Time(1_709_209_800_250)),
            ("2000-03-01", Position::Time(951_868_800_000)),
        ];
        for (text, position) in table {
            assert_eq!(text.parse(), Ok(position), "{text}");
        }
        for text in ["", "-", "-0", "@", "@-1", "2023-02-29", "2024-13-01", "x", "2024-01-01T25:00"]
        {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn topics_with_partitions() {
        let parse = |text: &str| text.parse::<TopicPartitions>();
        let all = parse("orders").unwrap();
        assert_eq!((all.topic.as_str(), all.partitions.len()), ("orders", 0));
        assert_eq!(parse("t:5-7,0,6").unwrap().partitions, [0, 5, 6, 7]);
        for text in ["", ":1", "t:", "t:x", "t:-1", "t:3-1", "t:0-9999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
