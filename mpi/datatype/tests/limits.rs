//! What cannot be: wrong arguments are named, sizes beyond 63 bits are refused, huge counts cost nothing, and what the
//! standard's own examples say about extents.

use ironweave_datatype::{
    Argument, Basic, Combiner, Constructor, DEFAULT_ARGUMENT, Datatype, Distribution, MAX_DEPTH,
    Order, Shape, TypeError, UNDEFINED,
};

fn named(basic: Basic) -> Datatype {
    Datatype::named(basic)
}

fn make(constructor: Constructor) -> Datatype {
    Datatype::new(constructor).expect("right arguments")
}

fn wrong(constructor: Constructor) -> (Argument, usize, i64) {
    match Datatype::new(constructor).expect_err("wrong arguments") {
        TypeError::Argument { argument, index, value, .. } => (argument, index, value),
        other => panic!("{other}"),
    }
}

#[test]
fn wrong_arguments_are_named() {
    let of = named(Basic::Int);
    assert_eq!(
        wrong(Constructor::Contiguous { count: -1, of: of.clone() }),
        (Argument::Count, 0, -1)
    );
    let constructor = Constructor::Vector { count: 1, blocklength: -2, stride: 1, of: of.clone() };
    assert_eq!(wrong(constructor), (Argument::BlockLength, 0, -2));
    let constructor = Constructor::Indexed {
        blocklengths: vec![1, 2, -3],
        displacements: vec![0, 1, 2],
        of: of.clone(),
    };
    assert_eq!(wrong(constructor), (Argument::BlockLength, 2, -3));
    let subarray = |sizes: [i64; 2], subsizes: [i64; 2], starts: [i64; 2]| Constructor::Subarray {
        sizes: sizes.into(),
        subsizes: subsizes.into(),
        starts: starts.into(),
        order: Order::C,
        of: of.clone(),
    };
    assert_eq!(wrong(subarray([4, 0], [1, 1], [0, 0])), (Argument::ArraySize, 1, 0));
    assert_eq!(wrong(subarray([4, 4], [5, 1], [0, 0])), (Argument::SubarraySize, 0, 5));
    assert_eq!(wrong(subarray([4, 4], [2, 2], [0, 3])), (Argument::Start, 1, 3));
    let darray = |rank, distribution, argument, processes| Constructor::Darray {
        size: 4,
        rank,
        gsizes: vec![10],
        distributions: vec![distribution],
        arguments: vec![argument],
        psizes: vec![processes],
        order: Order::C,
        of: of.clone(),
    };
    use Distribution::{Block, Cyclic, None};
    assert_eq!(wrong(darray(4, Block, DEFAULT_ARGUMENT, 4)), (Argument::Rank, 0, 4));
    assert_eq!(wrong(darray(0, Block, 2, 4)), (Argument::DistributionArgument, 0, 2));
    assert_eq!(wrong(darray(0, Cyclic, 0, 4)), (Argument::DistributionArgument, 0, 0));
    assert_eq!(wrong(darray(0, None, DEFAULT_ARGUMENT, 4)), (Argument::ProcessGrid, 0, 4));
    assert_eq!(wrong(darray(0, Cyclic, 1, 3)), (Argument::Size, 0, 4));
    let text = Datatype::new(Constructor::Contiguous { count: -1, of }).expect_err("wrong");
    assert_eq!(text.to_string(), "count -1 (number 0) must be 0 or more");
}

#[test]
fn nothing_exceeds_63_bits_and_huge_counts_cost_nothing() {
    let byte = named(Basic::Byte);
    let huge = make(Constructor::Contiguous { count: i64::MAX, of: byte.clone() });
    assert_eq!((huge.size(), huge.extent()), (i64::MAX, i64::MAX));
    let too_large = |constructor| {
        assert_eq!(Datatype::new(constructor).err(), Some(TypeError::TooLarge));
    };
    too_large(Constructor::Contiguous { count: 2, of: huge.clone() });
    too_large(Constructor::Contiguous { count: i64::MAX, of: named(Basic::Short) });
    too_large(Constructor::Hvector {
        count: 3,
        blocklength: 1,
        stride: i64::MAX,
        of: byte.clone(),
    });
    too_large(Constructor::Resized { lb: 2, extent: i64::MAX, of: byte.clone() });
    too_large(Constructor::Hindexed {
        blocklengths: vec![1, 1],
        displacements: vec![i64::MIN, i64::MAX - 1],
        of: byte.clone(),
    });
    assert_eq!(Shape::new(&huge, 2).err(), Some(TypeError::TooLarge));
    let spread =
        make(Constructor::Hvector { count: 1 << 40, blocklength: 1, stride: 1 << 20, of: byte });
    assert_eq!(spread.size(), 1 << 40);
    let shape = Shape::new(&spread, 3).expect("fits");
    assert_eq!(shape.locate((1 << 40) + 7), ((((1 << 40) - 1) << 20) + 1 + (7 << 20), 1));
}

#[test]
fn nesting_ends() {
    let mut datatype = named(Basic::Char);
    let deeper = |of| Constructor::Hvector { count: 2, blocklength: 1, stride: 0, of };
    // Sizes end first, where each level doubles; so most levels are duplicates.
    for level in 0..MAX_DEPTH {
        datatype = make(if level < 40 { deeper(datatype) } else { Constructor::Dup(datatype) });
    }
    assert_eq!(datatype.size(), 1 << 40);
    assert_eq!(Datatype::new(Constructor::Dup(datatype)).err(), Some(TypeError::TooDeep));
}

#[test]
fn extents_are_padded_to_the_alignment() {
    // MPI 5.0, example 5.1: a double and a char.
    let pair = make(Constructor::Struct {
        blocklengths: vec![1, 1],
        displacements: vec![0, 8],
        types: vec![named(Basic::Double), named(Basic::Char)],
    });
    assert_eq!((pair.size(), pair.extent(), pair.true_extent()), (9, 16, 9));
    let three = make(Constructor::Contiguous { count: 3, of: pair.clone() });
    assert_eq!((three.extent(), three.true_extent()), (48, 41));
    // Set bounds stick.
    let wide = make(Constructor::Resized { lb: -3, extent: 9, of: named(Basic::Int) });
    let both = make(Constructor::Struct {
        blocklengths: vec![1, 1],
        displacements: vec![0, 100],
        types: vec![wide.clone(), named(Basic::Double)],
    });
    assert_eq!((both.lb(), both.extent(), both.true_extent()), (-3, 9, 108));
    let two = make(Constructor::Contiguous { count: 2, of: wide });
    assert_eq!((two.lb(), two.extent(), two.true_lb(), two.true_extent()), (-3, 18, 0, 13));
    let nothing = make(Constructor::Contiguous { count: 0, of: pair });
    assert_eq!((nothing.lb(), nothing.extent(), nothing.size()), (0, 0, 0));
    assert_eq!(nothing.is_dense(5), Some(0));
    assert_eq!((nothing.count_in(0), nothing.count_in(4)), (Some(0), None));
}

#[test]
fn contents_are_the_arguments() {
    let of = named(Basic::Int);
    let constructor = Constructor::Hindexed {
        blocklengths: vec![1, 2],
        displacements: vec![40, 80],
        of: of.clone(),
    };
    let small = make(constructor.clone()).contents();
    assert_eq!(small.combiner, Combiner::Hindexed);
    assert_eq!((small.integers, small.addresses), (vec![2, 1, 2], vec![40, 80]));
    assert!(small.large_counts.is_empty() && small.datatypes[0].is(&of));
    let large = Datatype::new_large(constructor).expect("right").contents();
    assert_eq!(large.large_counts, [2, 1, 2, 40, 80]);
    assert!(large.integers.is_empty() && large.addresses.is_empty());
    let array = Datatype::new_large(Constructor::Darray {
        size: 4,
        rank: 2,
        gsizes: vec![10, 20],
        distributions: vec![Distribution::Block, Distribution::Cyclic],
        arguments: vec![DEFAULT_ARGUMENT, 3],
        psizes: vec![2, 2],
        order: Order::Fortran,
        of: of.clone(),
    })
    .expect("right")
    .contents();
    assert_eq!(array.integers, [4, 2, 2, 17, 18, 19, 3, 2, 2, 15]);
    assert_eq!(array.large_counts, [10, 20]);
    assert_eq!(of.contents().combiner, Combiner::Named);
    assert!(of.is_named() && !make(Constructor::Dup(of)).is_named());
}

#[test]
fn fortran_kinds_are_the_smallest_that_do() {
    let real = |precision, range| Datatype::new(Constructor::F90Real { precision, range });
    assert_eq!(real(6, 37).expect("there is").size(), 4);
    assert_eq!(real(7, UNDEFINED).expect("there is").size(), 8);
    assert_eq!(real(UNDEFINED, 308).expect("there is").size(), 16);
    assert!(real(UNDEFINED, UNDEFINED).is_err() && real(34, 1).is_err() && real(1, 5000).is_err());
    let integer = |range| Datatype::new(Constructor::F90Integer { range });
    assert_eq!([2, 3, 9, 10, 38].map(|r| integer(r).expect("there is").size()), [1, 2, 4, 8, 16]);
    assert!(integer(39).is_err());
    let complex = Datatype::new(Constructor::F90Complex { precision: 15, range: UNDEFINED });
    assert_eq!(complex.expect("there is").signature().homogeneous(), Some(Basic::Complex16));
}
