//! ApiVersions (18): what this broker speaks. The one API that answers versions it does not know.

use wire::ErrorCode;
use wire::frame;
use wire::messages::api_versions_request::ApiVersionsRequest;
use wire::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};

use super::{Request, api_table, support};
use crate::reply::{Handled, Reply};

/// Versions from here on name the client software.
const CLIENT_SOFTWARE_VERSION: i16 = 3;
/// Versions from here on may say which cluster and node the client means to talk to.
const NODE_CHECK_VERSION: i16 = 5;

pub(crate) fn handle(request: &Request) -> Handled {
    if !request.version_is_supported {
        return unsupported(request);
    }
    let body: ApiVersionsRequest<'_> = request.body()?;
    if request.version >= CLIENT_SOFTWARE_VERSION
        && !(is_software_name(&body.client_software_name)
            && is_software_name(&body.client_software_version))
    {
        return request.reply(&failed(ErrorCode::InvalidRequest));
    }
    if request.version >= NODE_CHECK_VERSION && !is_meant_for_us(request, &body) {
        return request.reply(&failed(ErrorCode::RebootstrapRequired));
    }
    let api_keys: Vec<ApiVersion> = api_table()
        .iter()
        .map(|api| ApiVersion {
            api_key: api.key.code(),
            min_version: api.advertised_min,
            max_version: api.max,
        })
        .collect();
    let features = request.shard.features();
    request.reply(&ApiVersionsResponse {
        error_code: ErrorCode::None.code(),
        api_keys: api_keys.into(),
        supported_features: features.supported.into(),
        finalized_features_epoch: features.finalized_epoch,
        finalized_features: features.finalized.into(),
        ..Default::default()
    })
}

fn failed(error: ErrorCode) -> ApiVersionsResponse<'static> {
    ApiVersionsResponse { error_code: error.code(), ..Default::default() }
}

/// The answer to a version from the future: version 0 layout, error 35 and our own range, so that
/// the client can try again (KIP-511).
fn unsupported(request: &Request) -> Handled {
    let own = support(request.api).map(|api| ApiVersion {
        api_key: api.key.code(),
        min_version: api.advertised_min,
        max_version: api.max,
    });
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: own.into_iter().collect::<Vec<_>>().into(),
        ..Default::default()
    };
    let mut writer = frame::begin_response(request.api, 0, request.correlation_id);
    wire::Message::encode(&response, &mut writer, 0)?;
    let output = frame::finish_response(writer);
    Ok(Reply::encoded(output.bytes))
}

/// A client that reconnects says whom it expects (KIP-1242); an unset field matches anyone.
fn is_meant_for_us(request: &Request, body: &ApiVersionsRequest<'_>) -> bool {
    let cluster = body.cluster_id.as_deref();
    let cluster_matches = cluster.is_none_or(|id| id == request.shard.cluster_id());
    let node_matches = body.node_id == -1 || body.node_id == request.shard.node_id();
    cluster_matches && node_matches
}

/// Letters, digits, dots and dashes, starting and ending with a letter or digit (KIP-511).
fn is_software_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_follow_the_pattern() {
        for good in ["a", "apache-kafka-java", "4.4.0", "librdkafka", "x-1.y"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "a_b", ".", "ü"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
