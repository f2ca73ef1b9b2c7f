//! Names of topics: which are allowed and which are the system's own.

/// Longest topic name; with a partition number it must fit a directory name.
const NAME_BYTES_MAX: usize = 249;

pub const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";
pub const GROUP_OFFSETS_TOPIC: &str = "__consumer_offsets";
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";
pub const SHARE_STATE_TOPIC: &str = "__share_group_state";

/// Whether the system keeps its own state in this topic; Metadata marks such topics.
pub fn is_internal(topic: &str) -> bool {
    matches!(topic, GROUP_OFFSETS_TOPIC | TRANSACTION_STATE_TOPIC | SHARE_STATE_TOPIC)
}

/// What is wrong with a topic name, in Kafka's words; `None` if nothing is.
pub fn topic_name_problem(name: &str) -> Option<String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let problem = if name.is_empty() {
        "the empty string is not allowed".to_string()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if name.len() > NAME_BYTES_MAX {
        format!("the length of '{name}' is longer than the max allowed length {NAME_BYTES_MAX}")
    } else if !name.bytes().all(allowed) {
        format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
    } else {
        return None;
    };
    Some(format!("Topic name is invalid: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules() {
        for good in ["a", "A.b_c-9", "...", "-", &"x".repeat(249)] {
            assert_eq!(topic_name_problem(good), None, "{good}");
        }
        for (bad, message) in [
            ("", "Topic name is invalid: the empty string is not allowed"),
            (".", "Topic name is invalid: '.' is not allowed"),
            ("..", "Topic name is invalid: '..' is not allowed"),
            (
                "a b",
                "Topic name is invalid: 'a b' contains one or more characters other than ASCII \
                 alphanumerics, '.', '_' and '-'",
            ),
        ] {
            assert_eq!(topic_name_problem(bad).as_deref(), Some(message));
        }
        for bad in ["é", "a/b", "a\0", &"x".repeat(250)] {
            assert!(topic_name_problem(bad).is_some(), "{bad}");
        }
    }
}
