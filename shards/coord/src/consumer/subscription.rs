//! What a group subscribes to, and what those topics look like.

use std::collections::{BTreeMap, BTreeSet};

use super::{ConsumerGroup, Member, Resolved};
use crate::Name;
use crate::context::{TopicInfo, Topics};
use crate::hash;

/// The members and expressions of a group as a change would leave them.
pub(crate) struct View<'a> {
    pub members: BTreeMap<&'a str, &'a Member>,
    pub regexes: BTreeMap<&'a str, &'a Resolved>,
}

impl<'a> View<'a> {
    pub fn of(group: &'a ConsumerGroup) -> Self {
        View {
            members: group.members.iter().map(|(id, member)| (&**id, member)).collect(),
            regexes: group.regexes.iter().map(|(text, it)| (&**text, it)).collect(),
        }
    }

    /// The topics of one member, by name and by expression.
    pub fn topics_of(&self, member: &Member) -> BTreeSet<Name> {
        let resolved = member.regex.as_deref().and_then(|regex| self.regexes.get(regex));
        let by_regex = resolved.into_iter().flat_map(|resolved| resolved.topics.iter());
        member.topics.iter().chain(by_regex).cloned().collect()
    }

    /// The topics of all members that exist.
    pub fn topics(&self, cluster: &dyn Topics) -> BTreeMap<Name, TopicInfo> {
        let mut names: BTreeSet<Name> = BTreeSet::new();
        for member in self.members.values() {
            names.extend(self.topics_of(member));
        }
        let known = names.into_iter().filter_map(|name| {
            let info = cluster.by_name(&name)?;
            Some((name, info))
        });
        known.collect()
    }
}

/// The hash of a group's topics: 0 if there are none.
pub(crate) fn metadata_hash(topics: &BTreeMap<Name, TopicInfo>) -> i64 {
    hash::of_topics(topics.iter().map(|(name, info)| (&**name, info)))
}
