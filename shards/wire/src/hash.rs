//! The hashes that Kafka's clients and coordinators agree on.
//!
//! Lives on every core; pure functions. It never chooses a partition for a producer: the broker
//! takes what the client chose, these are for our own client commands and for the coordinators.

const MURMUR_SEED: u32 = 0x9747_b28c;
const MURMUR_M: u32 = 0x5bd1_e995;

/// MurmurHash2 (32 bit, the variant of Kafka's default partitioner) over `data`.
pub fn murmur2(data: &[u8]) -> i32 {
    // Kafka hashes with 32-bit lengths; keys are far below that.
    let mut hash = MURMUR_SEED ^ data.len() as u32;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(MURMUR_M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(MURMUR_M) ^ k.wrapping_mul(MURMUR_M);
    }
    if !tail.is_empty() {
        for (i, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * i);
        }
        hash = hash.wrapping_mul(MURMUR_M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MURMUR_M);
    (hash ^ (hash >> 15)) as i32
}

/// The partition that Kafka's default partitioner gives to a non-null key.
///
/// Zero partitions has no answer; it is treated as one so that no caller can divide by zero.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & i32::MAX) % partitions.max(1)
}

/// Java's `String.hashCode`: over UTF-16 code units, `31 * h + unit` in wrapping arithmetic.
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, add_unit)
}

/// The partition of an internal topic (`__consumer_offsets`, `__transaction_state`) that
/// coordinates a group or transactional id.
pub fn coordinator_partition(id: &str, partitions: i32) -> i32 {
    spread(java_string_hash(id), partitions)
}

/// The partition of `__share_group_state` that coordinates one partition of a share group;
/// `topic_id` in its 22-character text form.
pub fn share_coordinator_partition(
    group: &str,
    topic_id: &str,
    partition: i32,
    partitions: i32,
) -> i32 {
    let number = partition.to_string();
    let units = group.encode_utf16().chain(":".encode_utf16()).chain(topic_id.encode_utf16());
    let units = units.chain(":".encode_utf16()).chain(number.encode_utf16());
    spread(units.fold(0, add_unit), partitions)
}

fn add_unit(hash: i32, unit: u16) -> i32 {
    hash.wrapping_mul(31).wrapping_add(i32::from(unit))
}

/// Kafka's absolute value maps the most negative number to zero.
fn spread(hash: i32, partitions: i32) -> i32 {
    hash.checked_abs().unwrap_or(0) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_vectors() {
        for (key, hash) in [
            ("", 275_646_681),
            ("a", -1_563_381_124),
            ("abc", 479_470_107),
            ("abcd", -1_323_649_548),
            ("21", -973_932_308),
            ("foobar", -790_332_482),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key:?}");
        }
    }

    #[test]
    fn java_hash_vectors() {
        for (id, hash, partition) in [
            ("my-group", -1_906_497_762, 12),
            ("console-consumer-1", 35_782_224, 24),
            ("polygenelubricants", i32::MIN, 0),
            ("consommé", -567_948_501, 1),
        ] {
            assert_eq!(java_string_hash(id), hash, "{id:?}");
            assert_eq!(coordinator_partition(id, 50), partition, "{id:?}");
        }
        // Beyond the basic plane a character is two UTF-16 units.
        assert_eq!(java_string_hash("😀"), 31 * 0xd83d + 0xde00);
    }

    #[test]
    fn share_partition_hashes_the_joined_key() {
        let topic_id = "AAAAAAAAAAAAAAAAAAAAAQ";
        let joined = format!("g1:{topic_id}:7");
        assert_eq!(
            share_coordinator_partition("g1", topic_id, 7, 50),
            coordinator_partition(&joined, 50)
        );
    }

    #[test]
    fn partitions_stay_in_range() {
        for n in [-3, 0, 1, 2, 7, 1000] {
            for key in ["", "a", "polygenelubricants", "foobar"] {
                assert!((0..n.max(1)).contains(&partition_for_key(key.as_bytes(), n)));
                assert!((0..n.max(1)).contains(&coordinator_partition(key, n)));
            }
        }
    }
}
