//! Schema names as Rust names.

const KEYWORDS: [&str; 4] = ["type", "match", "ref", "use"];

/// `TopicIds` as `topic_ids`; a run of capitals is one word, as in `SASLMechanism`.
pub fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (i, &letter) in letters.iter().enumerate() {
        let after_lower = i > 0 && !letters[i - 1].is_uppercase();
        let before_lower = letters.get(i + 1).is_some_and(|next| next.is_lowercase());
        if i > 0 && letter.is_uppercase() && (after_lower || before_lower) {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// `TopicIds` as `topicIds`.
pub fn camel(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
}

pub fn field(name: &str) -> String {
    let name = snake(name);
    if KEYWORDS.contains(&name.as_str()) { format!("r#{name}") } else { name }
}
