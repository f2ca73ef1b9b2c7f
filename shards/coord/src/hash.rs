//! The hash of what a group's topics look like, kept with the group's epoch.
//!
//! A change of it is what makes a group assign anew when topics grow, come, go or move. It is Kafka's
//! (XXH3 over the fields in a fixed order), so a group that moves between the two sees no change.

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
