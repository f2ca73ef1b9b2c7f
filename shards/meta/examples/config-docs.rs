//! Prints `docs/configuration.md`:
//! `cargo run -p corelane-meta --example config-docs > docs/configuration.md`

fn main() {
    print!("{}", meta::config::configuration_page());
}
