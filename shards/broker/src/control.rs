//! Requests to the controller (shard 0) and its replies, as they travel between shards.

use meta::controller::{
    AlterConfigs, CreatePartitions, CreateTopic, CreatedTopic, DeleteTopic, DeletedTopic,
    FeatureUpdate, IncrementalAlter, ProducerIdBlock, Reassign,
};
use meta::{Failure, NodeId, Outcome};
use wire::Uuid;

/// What only the controller may decide.
pub enum ControlRequest {
    CreateTopics {
        topics: Vec<CreateTopic>,
        validate_only: bool,
    },
    /// Those of the names that do not exist, with the broker's defaults.
    AutoCreate {
        names: Vec<String>,
    },
    DeleteTopics {
        topics: Vec<DeleteTopic>,
    },
    CreatePartitions {
        topics: Vec<CreatePartitions>,
        validate_only: bool,
    },
    AlterConfigs {
        resources: Vec<AlterConfigs>,
        validate_only: bool,
    },
    IncrementalAlterConfigs {
        resources: Vec<IncrementalAlter>,
        validate_only: bool,
    },
    UpdateFeatures {
        updates: Vec<FeatureUpdate>,
        validate_only: bool,
    },
    AllocateProducerIds {
        node: NodeId,
    },
    /// A finished copy of a partition takes its place: this is the moment it does.
    AssignDirectory {
        topic_id: Uuid,
        partition: i32,
        /// As the shard knows it: a partition that has changed meanwhile is left alone.
        partition_epoch: i32,
        directory: Uuid,
    },
    Reassign(Reassign),
}

/// The answers to the items of a request, in its order.
pub enum ControlReply {
    Created(Vec<(String, Outcome<CreatedTopic>)>),
    Deleted(Vec<Outcome<DeletedTopic>>),
    PartitionsCreated(Vec<(String, Outcome<()>)>),
    ConfigsAltered(Vec<Outcome<()>>),
    FeaturesUpdated(Outcome<()>),
    ProducerIds(Outcome<ProducerIdBlock>),
    DirectoryAssigned(Outcome<()>),
    /// By topic and partition, in the order of the request.
    Reassigned(Vec<Outcome<()>>),
    /// The decision could not be made durable.
    Failed(Failure),
}

/// Takes the expected kind of reply apart. Another kind would be a fault of the controller, which
/// answers a request with its own kind.
macro_rules! expect {
    ($name:ident, $kind:ident, $type:ty) => {
        pub(crate) fn $name(self) -> Result<$type, Failure> {
            match self {
                ControlReply::$kind(outcome) => Ok(outcome),
                ControlReply::Failed(failure) => Err(failure),
                _ => unreachable!("the controller answers a request with its own kind"),
            }
        }
    };
}

impl ControlReply {
    expect!(created, Created, Vec<(String, Outcome<CreatedTopic>)>);
    expect!(deleted, Deleted, Vec<Outcome<DeletedTopic>>);
    expect!(partitions_created, PartitionsCreated, Vec<(String, Outcome<()>)>);
    expect!(reassigned, Reassigned, Vec<Outcome<()>>);
    expect!(configs_altered, ConfigsAltered, Vec<Outcome<()>>);

    pub(crate) fn directory_assigned(self) -> Result<(), Failure> {
        match self {
            ControlReply::DirectoryAssigned(outcome) => outcome,
            ControlReply::Failed(failure) => Err(failure),
            _ => unreachable!("the controller answers a request with its own kind"),
        }
    }

    pub(crate) fn features_updated(self) -> Result<(), Failure> {
        match self {
            ControlReply::FeaturesUpdated(outcome) => outcome,
            ControlReply::Failed(failure) => Err(failure),
            _ => unreachable!("the controller answers a request with its own kind"),
        }
    }

    pub(crate) fn producer_ids(self) -> Result<ProducerIdBlock, Failure> {
        match self {
            ControlReply::ProducerIds(outcome) => outcome,
            ControlReply::Failed(failure) => Err(failure),
            _ => unreachable!("the controller answers a request with its own kind"),
        }
    }
}
