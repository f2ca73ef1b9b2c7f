//! The configuration page in `docs/` is the one that the registry writes.

#[test]
fn the_configuration_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(path).unwrap();
    assert!(
        page == meta::config::configuration_page(),
        "docs/configuration.md is out of date; run \
         cargo run -p corelane-meta --example config-docs > docs/configuration.md"
    );
}
