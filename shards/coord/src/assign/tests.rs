//! Assignors against what they promise, on random groups.

use super::*;

const ASSIGNORS: [Assignor; 2] = [Assignor::Uniform, Assignor::Range];

fn next_random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

struct Case {
    ids: Vec<String>,
    subscriptions: Vec<BTreeSet<Uuid>>,
    topics: Vec<(Uuid, i32)>,
}

impl Case {
    fn random(seed: &mut u64, alike: bool) -> Self {
        let mut below = |n: u64| next_random(seed) % n;
        let topics: Vec<(Uuid, i32)> =
            (0..1 + below(6)).map(|at| (Uuid([at as u8; 16]), below(12) as i32)).collect();
        let members = 1 + below(8);
        let ids = (0..members).map(|at| format!("m{at}")).collect();
        let all: BTreeSet<Uuid> = topics.iter().map(|(id, _)| *id).collect();
        let subscriptions = (0..members)
            .map(|_| all.iter().copied().filter(|_| alike || below(3) > 0).collect())
            .collect();
        Case { ids, subscriptions, topics }
    }

    fn assign(&self, assignor: Assignor, current: &[Parts]) -> Vec<Parts> {
        let nothing = Parts::default();
        let members: Vec<Candidate<'_>> = self
            .ids
            .iter()
            .enumerate()
            .map(|(at, id)| Candidate {
                id,
                instance: None,
                rack: None,
                topics: self.subscriptions[at].clone(),
                current: current.get(at).unwrap_or(&nothing),
            })
            .collect();
        let topics = self
            .topics
            .iter()
            .map(|(id, partitions)| (*id, TopicParts { partitions: *partitions, racks: &[] }));
        assignor.assign(&members, &topics.collect())
    }

    /// Every partition that someone subscribes to has one owner, who subscribes to it.
    fn check(&self, assigned: &[Parts]) {
        assert_eq!(assigned.len(), self.ids.len());
        for (topic, partitions) in &self.topics {
            let wanted = self.subscriptions.iter().any(|topics| topics.contains(topic));
            for partition in 0..*partitions {
                let owners =
                    (0..assigned.len()).filter(|at| assigned[*at].contains(*topic, partition));
                let owners: Vec<usize> = owners.collect();
                assert_eq!(owners.len(), usize::from(wanted), "{topic} {partition}: {owners:?}");
                assert!(owners.iter().all(|at| self.subscriptions[*at].contains(topic)));
            }
        }
        let total: i32 = self
            .topics
            .iter()
            .filter(|(topic, _)| self.subscriptions.iter().any(|it| it.contains(topic)))
            .map(|(_, partitions)| partitions)
            .sum();
        let given: usize = assigned.iter().map(|parts| parts.iter().count()).sum();
        assert_eq!(given, total as usize, "nothing that does not exist");
    }

    /// No member could give one to another and both be nearer to each other.
    fn check_balance(&self, assigned: &[Parts]) {
        let load = |at: usize| assigned[at].iter().count();
        for giver in 0..assigned.len() {
            for taker in 0..assigned.len() {
                let could = assigned[giver]
                    .iter()
                    .any(|(topic, _)| self.subscriptions[taker].contains(&topic));
                assert!(!could || load(giver) <= load(taker) + 1, "{assigned:?}");
            }
        }
    }
}

#[test]
fn every_partition_has_one_subscribed_owner() {
    for seed in 0..400 {
        let mut seed = seed;
        let alike = next_random(&mut seed) & 1 == 0;
        let mut case = Case::random(&mut seed, alike);
        for assignor in ASSIGNORS {
            let mut current = Vec::new();
            for _ in 0..4 {
                current = case.assign(assignor, &current);
                case.check(&current);
                if assignor == Assignor::Uniform {
                    case.check_balance(&current);
                }
                // Someone leaves, someone comes, a topic grows.
                if case.ids.len() > 1 && next_random(&mut seed) & 1 == 0 {
                    case.ids.remove(0);
                    case.subscriptions.remove(0);
                    current.remove(0);
                }
                case.ids.push(format!("n{}", case.ids.len()));
                case.subscriptions.push(case.subscriptions[0].clone());
                case.topics[0].1 += 1;
            }
        }
    }
}

#[test]
fn uniform_moves_nothing_without_need() {
    for seed in 0..200 {
        let mut seed = seed;
        let alike = seed & 1 == 0;
        let case = Case::random(&mut seed, alike);
        let first = case.assign(Assignor::Uniform, &[]);
        assert_eq!(case.assign(Assignor::Uniform, &first), first, "a second look changes nothing");
    }
}

#[test]
fn uniform_moves_as_little_as_even_shares_allow() {
    for seed in 0..200 {
        let mut seed = seed;
        let mut case = Case::random(&mut seed, true);
        let first = case.assign(Assignor::Uniform, &[]);
        let before: Vec<usize> = first.iter().map(|parts| parts.iter().count()).collect();
        let total: usize = before.iter().sum();
        // A newcomer takes its share and nothing else moves.
        case.ids.push("newcomer".into());
        case.subscriptions.push(case.subscriptions[0].clone());
        let mut current = first.clone();
        current.push(Parts::default());
        let second = case.assign(Assignor::Uniform, &current);
        let newcomer = second.last().unwrap().iter().count();
        assert!(newcomer <= total.div_ceil(case.ids.len()));
        let kept: usize = first
            .iter()
            .zip(&second)
            .map(|(old, new)| old.iter().filter(|(it, part)| new.contains(*it, *part)).count())
            .sum();
        assert_eq!(kept, total - newcomer);
        // It goes again: only its own moves.
        case.ids.pop();
        case.subscriptions.pop();
        let third = case.assign(Assignor::Uniform, &second[..first.len()]);
        for (had, has) in second.iter().zip(&third) {
            assert!(had.is_subset_of(has));
        }
    }
}

#[test]
fn range_gives_runs_and_keeps_equal_numbers_together() {
    let both: BTreeSet<Uuid> = [Uuid([1; 16]), Uuid([2; 16])].into();
    let case = Case {
        ids: vec!["b".into(), "a".into(), "c".into()],
        subscriptions: vec![both; 3],
        topics: vec![(Uuid([1; 16]), 7), (Uuid([2; 16]), 7)],
    };
    let assigned = case.assign(Assignor::Range, &[]);
    let runs: [&[i32]; 3] = [&[3, 4], &[0, 1, 2], &[5, 6]];
    for (parts, run) in assigned.iter().zip(runs) {
        let topics: Vec<&[i32]> = parts.topics().map(|(_, parts)| parts).collect();
        assert_eq!(topics, [run, run]);
    }
}

#[test]
fn uniform_prefers_the_members_rack_among_equals() {
    let topic = Uuid([1; 16]);
    let racks: Vec<Vec<String>> = (0..6).map(|at| vec![format!("r{}", at % 3)]).collect();
    let nothing = Parts::default();
    let names = ["r2", "r0", "r1"];
    let members: Vec<Candidate<'_>> = names
        .iter()
        .map(|rack| Candidate {
            id: rack,
            instance: None,
            rack: Some(rack),
            topics: [topic].into(),
            current: &nothing,
        })
        .collect();
    let topics = [(topic, TopicParts { partitions: 6, racks: &racks })].into();
    let assigned = Assignor::Uniform.assign(&members, &topics);
    for (parts, rack) in assigned.iter().zip(names) {
        let partitions: Vec<i32> = parts.iter().map(|(_, part)| part).collect();
        assert_eq!(partitions.len(), 2);
        assert!(
            partitions.iter().all(|it| racks[*it as usize][0] == rack),
            "{rack} {partitions:?}"
        );
    }
}

#[test]
fn names_lead_back() {
    for assignor in ASSIGNORS {
        assert_eq!(Assignor::from_name(assignor.name()), Some(assignor));
    }
    assert_eq!(Assignor::from_name("sticky"), None);
}
