//! What the run was made with and on, and how to read the page.

use std::fmt::Write as _;

use super::text::Text;
use crate::report::{Broker, Disk, Report};

pub fn write(out: &mut String, report: &Report) {
    out.push_str("<section id=\"conditions\">\n<h2>Conditions</h2>\n<div class=\"facts-grid\">\n");
    run(out, report);
    report.machine.disks.iter().for_each(|one| disk(out, one));
    report.brokers.iter().for_each(|one| broker(out, one));
    if !report.conditions.is_empty() {
        let all = report.conditions.iter().map(|each| (each.name.as_str(), each.value.clone()));
        list(out, "Settings and limits", &all.collect::<Vec<_>>());
    }
    out.push_str("</div>\n");
    legs(out, report);
    out.push_str("</section>\n");
    reading(out);
}

fn run(out: &mut String, report: &Report) {
    let machine = &report.machine;
    let memory = machine.memory_bytes as f64 / f64::from(1 << 30);
    let command = match report.command.as_slice() {
        [] => "not recorded".to_owned(),
        words => words.join(" "),
    };
    let items = [
        ("command", command),
        ("processor", format!("{}, {} cores", machine.cpu, machine.cores)),
        ("memory", format!("{memory:.1} GiB")),
        ("kernel", format!("Linux {}", machine.kernel)),
        ("tool", format!("{} {}", report.tool.name, report.tool.version)),
        ("commit", report.tool.commit.clone()),
    ];
    list(out, "Machine and tool", &items);
}

fn disk(out: &mut String, disk: &Disk) {
    let text = |text: &Option<String>| text.clone();
    let size = disk.bytes.map(|bytes| format!("{:.0} GB", bytes as f64 / 1e9));
    let kind = disk.rotational.map(|yes| if yes { "rotating" } else { "not rotating" }.to_owned());
    let protection = match disk.power_loss_protection {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known: the kernel cannot tell",
    };
    let all = [
        ("emulated", text(&disk.emulated)),
        ("device", text(&disk.device)),
        ("model", text(&disk.model)),
        ("size", size),
        ("kind", kind),
        ("file system", text(&disk.file_system)),
        ("mounted", text(&disk.mount_options)),
        ("scheduler", text(&disk.scheduler)),
        ("write cache", text(&disk.write_cache)),
        ("power-loss protection", Some(protection.to_owned())),
    ];
    let known = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
    list(out, &format!("Disk {}", disk.path), &known.collect::<Vec<_>>());
}

fn broker(out: &mut String, broker: &Broker) {
    let mut items = vec![("addresses", broker.addresses.join(", "))];
    items.extend(broker.notes.iter().map(|note| ("note", note.clone())));
    items.extend(broker.configs.iter().map(|each| (each.name.as_str(), each.value.clone())));
    list(out, &broker.title(), &items);
}

fn list(out: &mut String, heading: &str, items: &[(&str, String)]) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "<div class=\"card\"><h3>{}</h3>\n<dl>", Text(heading));
    for (name, value) in items {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", Text(name), Text(value));
    }
    out.push_str("</dl></div>\n");
}

fn legs(out: &mut String, report: &Report) {
    if report.legs.is_empty() {
        return;
    }
    out.push_str(
        "<h3>Legs, in their order</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Legs\"><table>\n<thead><tr><th scope=\"col\">broker</th>\
         <th scope=\"col\">part</th><th scope=\"col\" class=\"figure\">seconds</th>\
         <th scope=\"col\">load averages before</th><th scope=\"col\">after</th></tr></thead>\n\
         <tbody>\n",
    );
    for leg in &report.legs {
        let broker = report.brokers.iter().find(|broker| broker.id == leg.broker);
        let name = broker.map_or_else(|| leg.broker.clone(), Broker::title);
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"figure\">{:.0}</td><td>{}</td>\
             <td>{}</td></tr>",
            Text(&name),
            Text(&leg.part),
            leg.seconds,
            Text(&leg.load_before),
            Text(&leg.load_after)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn reading(out: &mut String) {
    out.push_str(
        "<section id=\"reading\">\n<h2>How to read this</h2>\n<ul>\n\
         <li>A figure is the median of its repeats or windows; under it the lowest and the highest, \
         where it was measured more than once. \
         MB and GB are 10<sup>6</sup> and 10<sup>9</sup> bytes of record values.</li>\n\
         <li><b>Open loop</b>: requests are due on a schedule fixed in advance, and latency runs from \
         the moment at which one was due, however late it was sent. <b>Closed loop</b>: the next one \
         goes when the last one is answered; that says how much gets through, not how long a request \
         takes on a busy broker.</li>\n\
         <li><b>Durability</b> is what an acknowledgement means in that row. Compare rows only where it \
         is the same, or with the difference in mind.</li>\n\
         <li><b>Void</b>: the figures say nothing of the subject, for the reason given; they are \
         struck, and compared with nothing.</li>\n\
         <li><b>Emulated</b>: the disk was made slower to look like another kind; its figures are \
         those of no disk.</li>\n\
         <li>In plots by percentile every further nine takes the same room: 90, 99, 99.9. The right \
         end is the maximum. Bars beside ratios go right for better and left for worse, to the end at \
         a hundred times.</li>\n</ul>\n</section>\n",
    );
}
