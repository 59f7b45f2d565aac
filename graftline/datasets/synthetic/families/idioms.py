"""Families of idioms: two ways to say the same, neither of which needs a name from the code."""

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import JAVA, JAVASCRIPT, PYTHON, Family, there_and_back


def _idiom(
    languages: tuple[Language, ...], id: str, there: tuple[str, str], says: tuple[str, ...],
    inverse: str, inverse_says: tuple[str, ...],
) -> Family:  # fmt: skip
    return Family(id, "idiom", says, (there_and_back(languages, *there),), inverse=inverse, inverse_says=inverse_says)


_OF_PYTHON: tuple[Family, ...] = (
    _idiom(PYTHON, "none_by_equality", ("$A is None", "$A == None"), (
        "Compare with None by `==`.",
        "Tests for None should ask for equality.",
        "Do not ask for the identity of None; equal is enough.",
    ), "none_by_identity", (
        "Compare with None by `is`.",
        "Tests for None should ask for identity.",
        "None is one object: do not ask whether something equals it.",
    )),
    _idiom(PYTHON, "not_none_by_equality", ("$A is not None", "$A != None"), (
        "Compare with None by `!=` where it must not be.",
        "Tests that something is there should ask whether it differs from None.",
        "Do not ask by identity whether a value is there.",
    ), "not_none_by_identity", (
        "Compare with None by `is not` where it must not be.",
        "Tests that something is there should ask by identity.",
        "Do not ask whether a value differs from None; ask whether it is another object.",
    )),
    _idiom(PYTHON, "get_item", ("$D[$K]", "$D.get($K)"), (
        "Look keys up with `get`.",
        "Missing keys should give None and no error.",
        "Subscripts become lookups that cannot fail.",
    ), "subscript_item", (
        "Look keys up by subscript.",
        "Missing keys should be errors: do not use `get` with one argument.",
        "Lookups that cannot fail become subscripts.",
    )),
    _idiom(PYTHON, "not_in", ("not $A in $B", "$A not in $B"), (
        "Write negated membership by the operator that there is for it.",
        "Tests that something is missing should read from left to right.",
        "Put the negation of membership between its two sides.",
    ), "not_before_in", (
        "Write the negation of membership in front.",
        "Negate the whole test for membership.",
        "Tests that something is missing should start with the negation.",
    )),
    _idiom(PYTHON, "length_is_zero", ("len($A) == 0", "not $A"), (
        "Test for emptiness without asking for the length.",
        "Empty containers are falsy: use that.",
        "Do not compare lengths with zero.",
    ), "falsy_is_empty", (
        "Test for emptiness by the length.",
        "Say that a negated container means no items.",
        "Negations should compare the length with zero.",
    )),
    _idiom(PYTHON, "type_to_isinstance", ("type($A) == $B", "isinstance($A, $B)"), (
        "Accept subclasses where the exact class is compared.",
        "Ask for instances and not for equal classes.",
        "Do not compare the class of a value by equality.",
    ), "isinstance_to_type", (
        "Accept no subclasses: compare the class.",
        "Ask for equal classes and not for instances.",
        "A value must be of exactly that class.",
    )),
    _idiom(PYTHON, "isinstance_union", ("isinstance($X, ($A, $B))", "isinstance($X, $A | $B)"), (
        "Ask for one of two classes by a union.",
        "Tests against a pair of classes should use the bar.",
        "Write two classes to be tested against as one type.",
    ), "isinstance_tuple", (
        "Ask for one of two classes by a tuple.",
        "Tests against a union of classes should name them in parentheses.",
        "Older Python takes no union where instances are tested.",
    )),
    _idiom(PYTHON, "join_paths", ("os.path.join($A, $B)", "Path($A) / $B"), (
        "Join two parts of a path by the operator of pathlib.",
        "Use path objects to put two parts together.",
        "Paths of two parts should not be joined as texts.",
    ), "join_path_texts", (
        "Join two parts of a path as texts.",
        "Use the function of the os module to put two parts of a path together.",
        "Paths of two parts should not be made by an operator.",
    )),
    _idiom(PYTHON, "list_literal", ("list()", "[]"), (
        "Write empty lists as literals.",
        "Do not call the class for an empty list.",
        "An empty list is a pair of brackets.",
    ), "list_call", (
        "Write empty lists as calls of their class.",
        "Empty brackets are hard to see: name the class.",
        "Make empty lists by the constructor.",
    )),
    _idiom(PYTHON, "dict_literal", ("dict()", "{}"), (
        "Write empty dictionaries as literals.",
        "Do not call the class for an empty dictionary.",
        "An empty dictionary is a pair of braces.",
    ), "dict_call", (
        "Write empty dictionaries as calls of their class.",
        "Empty braces are hard to see: name the class.",
        "Make empty dictionaries by the constructor.",
    )),
    _idiom(PYTHON, "keys_of_dictionary", ("$D.keys()", "list($D)"), (
        "Take the keys of a dictionary as a list, by its class.",
        "Views of keys should be lists.",
        "Do not ask for the view of the keys; make a list.",
    ), "view_of_keys", (
        "Take the keys of a dictionary as a view.",
        "Lists made of one thing should be views of its keys.",
        "Do not make a list where a view of the keys will do.",
    )),
    _idiom(PYTHON, "raise_for_assert", ("assert $C", "if not $C:\n    raise AssertionError"), (
        "Assertions without a message must hold when Python is optimized: raise by hand.",
        "Spell bare assertions out.",
        "Replace bare assertions by a test that raises.",
    ), "assert_for_raise", (
        "Use an assertion where its error is raised by hand.",
        "Shorten tests that raise the error of assertions.",
        "Tests that only raise the error of assertions should be assertions.",
    )),
    _idiom(PYTHON, "assert_equal", ("assert $A == $B", "self.assertEqual($A, $B)"), (
        "Use the method of the test case for equality.",
        "Assertions of equality should be those of unittest.",
        "Plain assertions that two things are equal become calls of the test case.",
    ), "plain_assert_equal", (
        "Use plain assertions for equality.",
        "Assertions of equality should be those of pytest.",
        "Calls of the test case that compare two things become plain assertions.",
    )),
    _idiom(PYTHON, "set_default", ("$D.get($K, None)", "$D.get($K)"), (
        "None is the default of lookups: do not say so.",
        "Lookups need not state the default that they have anyway.",
        "Drop None where it is the second argument of a lookup by `get`.",
    ), "say_default", (
        "State the default of lookups: None.",
        "Lookups by `get` should say what they give for a missing key.",
        "Spell out that a lookup with one argument defaults to None.",
    )),
    _idiom(PYTHON, "map_to_comprehension", ("list(map($F, $X))", "[$F(item) for item in $X]"), (
        "Use comprehensions in place of mapped lists.",
        "Lists made by mapping a function should be comprehensions.",
        "Spell mapped lists out, with `item` as the variable.",
    ), "comprehension_to_map", (
        "Map the function in place of a comprehension over `item`.",
        "Comprehensions that only call a function on `item` should be mapped lists.",
        "Shorten comprehensions that apply one function to `item`.",
    )),
)  # fmt: skip
_OF_JAVASCRIPT: tuple[Family, ...] = (
    _idiom(JAVASCRIPT, "object_is", ("$A === $B", "Object.is($A, $B)"), (
        "Compare by the function of `Object`.",
        "Strict equality should tell NaN and minus zero right: use the function for it.",
        "Replace the operator of strict equality by a call.",
    ), "equality_operator", (
        "Compare by the operator of strict equality.",
        "Calls that compare two values through `Object` become operators.",
        "Replace calls that test sameness by the operator.",
    )),
    _idiom(JAVASCRIPT, "typeof_undefined", ("$A === undefined", "typeof ($A) === 'undefined'"), (
        "Test for undefined by the type.",
        "Names may not be declared: ask for the type where undefined is tested.",
        "Do not compare with undefined itself.",
    ), "compare_undefined", (
        "Test for undefined by comparing with it.",
        "Do not go over the type where undefined is tested.",
        "Shorten tests of a type that say undefined.",
    )),
    _idiom(JAVASCRIPT, "includes", ("$A.indexOf($B) !== -1", "$A.includes($B)"), (
        "Ask whether something is included and not where it is.",
        "Tests of a position against minus one should be tests of membership.",
        "Use the method for membership.",
    ), "index_of", (
        "Old engines know no test of membership: compare the position with minus one.",
        "Ask where something is and whether that is anywhere.",
        "Replace tests of membership by tests of the position.",
    )),
    _idiom(JAVASCRIPT, "own_property", ("$O.hasOwnProperty($K)", "Object.hasOwn($O, $K)"), (
        "Ask `Object` and not the object whether it has a key.",
        "Objects may have no prototype: test their own keys by the static method.",
        "Tests of own keys should not call a method that may be overridden.",
    ), "own_property_method", (
        "Ask the object itself whether it has a key.",
        "Old engines know no static test of own keys; use the method of the prototype.",
        "Tests of own keys should call the object's method.",
    )),
    _idiom(JAVASCRIPT, "spread_object", ("Object.assign({}, $A)", "{ ...$A }"), (
        "Copy objects by spreading.",
        "Assignments to an empty object should be spread.",
        "Use the literal with three dots for copies of one object.",
    ), "assign_object", (
        "Copy objects by assigning to an empty one.",
        "Literals that only spread one object should be assignments.",
        "Old engines know no three dots in objects.",
    )),
    _idiom(JAVASCRIPT, "is_array", ("$X instanceof Array", "Array.isArray($X)"), (
        "Arrays of other frames are arrays too: test by the function for it.",
        "Ask `Array` whether a value is one.",
        "Do not test for arrays by their constructor.",
    ), "instance_of_array", (
        "Test for arrays by their constructor.",
        "Arrays of this frame only: ask for instances.",
        "Replace the function that tests for arrays by the operator.",
    )),
    _idiom(JAVASCRIPT, "empty_length", ("$A.length === 0", "!$A.length"), (
        "Zero is falsy: do not compare lengths with it.",
        "Shorten tests for emptiness.",
        "Negate the length where it is compared with zero.",
    ), "length_is_nothing", (
        "Compare lengths with zero where they are negated.",
        "Tests for emptiness should say zero.",
        "Do not rely on zero being falsy where a length is tested.",
    )),
    _idiom(JAVASCRIPT, "last_item", ("$A[$A.length - 1]", "$A.at(-1)"), (
        "Count from the end to reach the last item.",
        "The last item should not need the length.",
        "Use the method that takes negative positions for the last item.",
    ), "item_by_length", (
        "Reach the last item by the length.",
        "Old engines know no negative positions.",
        "Use a subscript for the last item.",
    )),
    _idiom(JAVASCRIPT, "optional_chain", ("$A && $A.$B", "$A?.$B"), (
        "Use optional chaining where a value is tested and then asked.",
        "A test of an object before its property should be a question mark.",
        "Shorten guarded reads of properties.",
    ), "guarded_read", (
        "Old engines know no optional chaining: test the value first.",
        "Spell reads with a question mark out.",
        "Test an object before its property is read.",
    )),
    _idiom(JAVASCRIPT, "power_operator", ("Math.pow($A, $B)", "$A ** $B"), (
        "Raise to a power by the operator.",
        "Powers need no function.",
        "Use two stars for powers.",
    ), "power_function", (
        "Raise to a power by the function of `Math`.",
        "Old engines know no operator for powers.",
        "Use the function and not two stars.",
    )),
    _idiom(JAVASCRIPT, "void_zero", ("$A = undefined", "$A = void 0"), (
        "Assign the undefined value by the operator that makes it, not by its name.",
        "Names can be hidden: compute the undefined value where it is assigned.",
        "Assign the undefined value in its shortest form.",
    ), "named_undefined", (
        "Assign the undefined value by its name.",
        "Use no operator to make the undefined value where it is assigned.",
        "Say undefined where it is computed and assigned.",
    )),
    _idiom(JAVASCRIPT, "null_or_undefined", ("$A == null", "$A === null || $A === undefined"), (
        "Spell loose comparisons with null out.",
        "Name both missing values where the code asks for null loosely.",
        "Loose tests for null should be two strict ones.",
    ), "loose_null", (
        "One loose comparison with null is enough for both missing values.",
        "Shorten tests for null or undefined.",
        "Two strict tests for missing values should be a loose one.",
    )),
)  # fmt: skip
_OF_JAVA: tuple[Family, ...] = (
    _idiom(JAVA, "is_null", ("$A == null", "Objects.isNull($A)"), (
        "Test for null with the method of `Objects`.",
        "Comparisons with null should be calls.",
        "Do not compare with null by the operator.",
    ), "equals_null", (
        "Test for null with the operator.",
        "Calls that test for null should be comparisons.",
        "Do not ask `Objects` whether something is null.",
    )),
    _idiom(JAVA, "is_not_null", ("$A != null", "Objects.nonNull($A)"), (
        "Test that something is there with the method of `Objects`.",
        "Comparisons that exclude null should be calls.",
        "Do not exclude null by the operator.",
    ), "differs_from_null", (
        "Test that something is there with the operator.",
        "Calls that exclude null should be comparisons.",
        "Do not ask `Objects` whether something is there.",
    )),
    _idiom(JAVA, "null_safe_equals", ("$A.equals($B)", "Objects.equals($A, $B)"), (
        "Compare in a way that null does not break.",
        "Use the static method for equality.",
        "Either side of a test for equality may be null: let `Objects` compare.",
    ), "plain_equals", (
        "Compare by the method of the first object.",
        "The first side of a test for equality is never null.",
        "Do not go through `Objects` for equality.",
    )),
    _idiom(JAVA, "is_empty", ("$A.size() == 0", "$A.isEmpty()"), (
        "Ask collections whether they are empty.",
        "Do not compare sizes with zero.",
        "Tests for emptiness should not count.",
    ), "size_is_zero", (
        "Ask collections for their size and compare it with zero.",
        "Tests for emptiness should count.",
        "Not everything that has a size can say that it is empty.",
    )),
    _idiom(JAVA, "text_is_empty", ("$A.length() == 0", "$A.isEmpty()"), (
        "Ask texts whether they are empty.",
        "Do not compare lengths of texts with zero.",
        "Tests for empty texts should not count characters.",
    ), "length_is_no_character", (
        "Compare the length of texts with zero.",
        "Tests for emptiness should go over the length.",
        "Not every sequence of characters can say that it is empty.",
    )),
    _idiom(JAVA, "new_list", ("new ArrayList<>($$$A)", "Lists.newArrayList($$$A)"), (
        "Make lists with the factory of `Lists`.",
        "Array lists should come from Guava.",
        "Do not construct array lists directly.",
    ), "construct_list", (
        "Make array lists by their constructor.",
        "Guava is not needed for array lists.",
        "Do not use the factory of `Lists`.",
    )),
    _idiom(JAVA, "value_of", ("$A.toString()", "String.valueOf($A)"), (
        "Turn values into text in a way that null does not break.",
        "Use the static method of `String` to make texts.",
        "Do not ask objects for their text directly.",
    ), "to_string", (
        "Ask objects for their text directly.",
        "Values to be turned into text are never null.",
        "Do not go through `String` to make texts.",
    )),
    _idiom(JAVA, "join_appends", ("$B.append($A).append($C)", "$B.append($A + $C)"), (
        "Append what is appended in two steps at once.",
        "Join two things before they are appended.",
        "Two appends in a row should be one.",
    ), "append_twice", (
        "Append the two sides of a sum one after the other.",
        "Do not join things only to append them.",
        "An append of a sum should be two.",
    )),
    _idiom(JAVA, "require_non_null", ("Validate.notNull($A, $B)", "Objects.requireNonNull($A, $B)"), (
        "Refuse null by the method of the JDK.",
        "Null checks need no library: use `Objects`.",
        "Checks of arguments against null should not go through `Validate`.",
    ), "validate_not_null", (
        "Refuse null by the method of `Validate`.",
        "Null checks should throw what the library throws.",
        "Checks of arguments against null should not go through `Objects`.",
    )),
    _idiom(JAVA, "lambda_reference", ("() -> $A.get()", "$A::get"), (
        "Use a method reference where a lambda only calls `get`.",
        "Lambdas that only ask for a value should be references.",
        "Shorten lambdas without parameters that call `get`.",
    ), "reference_lambda", (
        "Spell references to `get` out as lambdas.",
        "Use a lambda where a reference names `get`.",
        "References to `get` should be lambdas without parameters.",
    )),
)  # fmt: skip

IDIOMS: tuple[Family, ...] = (*_OF_PYTHON, *_OF_JAVASCRIPT, *_OF_JAVA)
