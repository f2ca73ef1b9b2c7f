//! The hash of what a group's topics look like, kept with the group's epoch.
//!
//! A change of it is what makes a group assign anew when topics grow, come, go or move. It is
//! Kafka's (XXH3 over the fields in a fixed order), so a group that moves between the two sees no
//! change.

use xxhash_rust::xxh3::xxh3_64;

use crate::context::TopicInfo;

/// Of topics in ascending order of name; 0 if there are none.
pub(crate) fn of_topics<'a>(topics: impl Iterator<Item = (&'a str, &'a TopicInfo)>) -> i64 {
    let mut bytes = Vec::new();
    for (name, info) in topics {
        bytes.extend(of_topic(name, info).to_le_bytes());
    }
    match bytes.as_slice() {
        [] => 0,
        // The bits are what counts, not the sign.
        bytes => xxh3_64(bytes).cast_signed(),
    }
}

fn of_topic(name: &str, info: &TopicInfo) -> u64 {
    let mut bytes = vec![0];
    let (most, least) = info.id.0.split_at(8);
    // Longs go in with their lowest byte first.
    bytes.extend(most.iter().rev());
    bytes.extend(least.iter().rev());
    put_text(&mut bytes, name);
    bytes.extend(info.partitions.to_le_bytes());
    for partition in 0..info.partitions {
        bytes.extend(partition.to_le_bytes());
        let at = usize::try_from(partition).unwrap_or(usize::MAX);
        let mut racks: Vec<&String> = info.racks.get(at).into_iter().flatten().collect();
        racks.sort_unstable();
        for rack in racks {
            bytes.extend(units(rack).to_le_bytes());
            put_text(&mut bytes, rack);
        }
    }
    xxh3_64(&bytes)
}

/// UTF-16 units, then how many.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    bytes.extend(units(text).to_le_bytes());
}

fn units(text: &str) -> i32 {
    i32::try_from(text.encode_utf16().count()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Uuid;

    fn topic(id: u8, racks: &[&[&str]]) -> TopicInfo {
        let racks: Vec<Vec<String>> =
            racks.iter().map(|racks| racks.iter().map(|rack| (*rack).into()).collect()).collect();
        let partitions = i32::try_from(racks.len()).unwrap();
        TopicInfo { id: Uuid([id; 16]), partitions, racks }
    }

    /// What Kafka 4.4.0's own `Utils` computed (`tests/golden/groups`).
    #[test]
    fn topics_hash_as_kafkas_do() {
        let t = topic(1, &[&[], &[]]);
        assert_eq!(of_topic("t", &t).cast_signed(), 2_188_560_753_641_346_472);
        assert_eq!(of_topics([("t", &t)].into_iter()), 6_455_853_051_531_903_202);
        let t = topic(1, &[&["b", "a"], &["c"]]);
        let u = topic(2, &[&[]]);
        assert_eq!(of_topic("tänk", &t).cast_signed(), -2_686_480_383_975_971_717);
        let both = of_topics([("tänk", &t), ("u", &u)].into_iter());
        assert_eq!(both, -4_018_014_308_331_413_253);
        let racks: Vec<Vec<String>> = (0..300).map(|at| vec![format!("rack-{}", at % 3)]).collect();
        let many = TopicInfo { id: Uuid([1; 16]), partitions: 300, racks };
        assert_eq!(of_topic("many", &many).cast_signed(), 1_219_495_580_966_941_511);
        assert_eq!(of_topics(std::iter::empty()), 0);
    }
}
