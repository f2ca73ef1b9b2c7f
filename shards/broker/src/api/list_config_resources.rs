//! ListConfigResources (74): the resources that can carry configuration, by type.

use meta::config::ResourceKind;
use wire::ErrorCode;
use wire::messages::list_config_resources_request::ListConfigResourcesRequest;
use wire::messages::list_config_resources_response::{ConfigResource, ListConfigResourcesResponse};

use super::{Request, owned};
use crate::reply::Handled;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;
const EVERY_TYPE: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
/// Version 0 knows client metrics only.
const TYPES_VERSION: i16 = 1;

pub(crate) async fn handle(request: Request) -> Handled {
    let body: ListConfigResourcesRequest<'_> = request.body()?;
    let types: Vec<i8> = if request.version < TYPES_VERSION {
        vec![CLIENT_METRICS]
    } else if body.resource_types.is_empty() {
        EVERY_TYPE.to_vec()
    } else {
        body.resource_types.to_vec()
    };
    drop(body);
    if types.iter().any(|kind| !EVERY_TYPE.contains(kind)) {
        return request.reply(&ListConfigResourcesResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            ..Default::default()
        });
    }
    let shard = &request.shard;
    let mut resources: Vec<ConfigResource<'static>> = Vec::new();
    let mut list = |resource_type: i8, name: &str| {
        resources.push(ConfigResource { resource_name: owned(name), resource_type });
    };
    for kind in types {
        match kind {
            TOPIC => shard.image().topics().for_each(|topic| list(TOPIC, &topic.name)),
            BROKER | BROKER_LOGGER => {
                for node in shard.endpoints() {
                    list(kind, &node.node_id.to_string());
                }
            }
            GROUP => {
                let image = shard.image();
                let names = image.overrides().names(ResourceKind::Group);
                names.into_iter().for_each(|name| list(GROUP, name));
            }
            // No client metrics subscriptions exist here.
            _ => {}
        }
    }
    request.reply(&ListConfigResourcesResponse {
        config_resources: resources.into(),
        ..Default::default()
    })
}
