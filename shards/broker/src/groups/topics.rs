//! The cluster's topics, as a coordinator asks for them.

use std::cell::Ref;

use coord::{TopicInfo, Topics};
use meta::Image;
use wire::Uuid;

use crate::shard::Shard;

/// The image as it stands; dropped before anything is awaited.
pub(super) struct ImageTopics<'a> {
    image: Ref<'a, Image>,
    version: i64,
}

impl<'a> ImageTopics<'a> {
    pub fn new(shard: &'a Shard) -> Self {
        ImageTopics { image: shard.image(), version: shard.groups.topics_version() }
    }

    fn info(&self, topic: &meta::Topic) -> TopicInfo {
        let rack = |node: &meta::NodeId| self.image.node(*node)?.rack.clone();
        let racks = match self.image.nodes().any(|node| node.rack.is_some()) {
            true => {
                let partitions = topic.partitions.iter();
                partitions.map(|p| p.replicas.iter().filter_map(rack).collect()).collect()
            }
            false => Vec::new(),
        };
        let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        TopicInfo { id: topic.id, partitions, racks }
    }
}

impl Topics for ImageTopics<'_> {
    fn by_name(&self, name: &str) -> Option<TopicInfo> {
        self.image.topic_by_name(name).map(|topic| self.info(topic))
    }

    fn name_of(&self, id: Uuid) -> Option<String> {
        self.image.topic_by_id(id).map(|topic| topic.name.to_string())
    }

    fn id_of(&self, name: &str) -> Option<Uuid> {
        self.image.topic_by_name(name).map(|topic| topic.id)
    }

    fn each_name(&self, call: &mut dyn FnMut(&str)) {
        self.image.topics().for_each(|topic| call(&topic.name));
    }

    fn version(&self) -> i64 {
        self.version
    }
}
