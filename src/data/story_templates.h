// The sentences of the generated stories. Slots:
//   {S}                who acts: the name, or she/he where the sentence before was about the same person
//   {N}                the name of who acts, always
//   {he} {him} {his}   pronouns of who acts
//   {Q} {qhim}         the other person, and that person's pronoun
//   {O}                the thing, or "it" where the sentence before was about it
//   {T}                the thing, always
//   {U}                the other thing
//   {P} {C} {K}        place, container, colour
//   {F} {G} {A}        feeling, a grown-up, the answer
#pragma once

#include <array>
#include <string_view>

namespace ddl::story {

using Text = std::string_view;

inline constexpr std::array<Text, 6> kOpenings = {
    "Once upon a time, there was a little {child} named {N}. One day {he} was in the {P}.",
    "One sunny morning, {N} was in the {P}.",
    "It was a warm day. {N} was in the {P}.",
    "There was once a {child} named {N}. {S} was in the {P}.",
    "One day, a little {child} named {N} was in the {P}.",
    "It was a cold and windy day, and {N} was in the {P}."};
inline constexpr std::array<Text, 4> kFriends = {"{his} friend {Q} was in the {P}.", "{Q} was in the {P}.",
                                                 "{his} good friend {Q} was in the {P}.",
                                                 "At that time {Q} was in the {P}."};
inline constexpr std::array<Text, 3> kContainerThere = {
    "There was a {C} in the {P}.", "In the {P} stood an old {C}.", "In the {P} there was a big {C}."};
inline constexpr std::array<Text, 3> kThingInContainer = {"A {K} {thing} was in the {C}.",
                                                          "In the {C} there was a {K} {thing}.",
                                                          "Someone had put a {K} {thing} in the {C}."};
inline constexpr std::array<Text, 3> kThingInPlace = {"A {K} {thing} lay in the {P}.",
                                                      "There was a {K} {thing} in the {P}.",
                                                      "In the {P} there was a little {K} {thing}."};
inline constexpr std::array<Text, 3> kThingHeld = {"{N} had a {K} {thing}.", "{N} was holding a {K} {thing}.",
                                                   "{N} had a little {K} {thing} with {him}."};

inline constexpr std::array<Text, 8> kConnectives = {"then ",  "after that, ",     "soon ",     "next, ",
                                                     "later ", "a little later, ", "and then ", "just then "};

inline constexpr std::array<Text, 6> kGoLines = {
    "{S} went to the {P}.",         "{S} walked to the {P}.",
    "{S} ran to the {P}.",          "{S} hurried off to the {P}.",
    "{S} skipped over to the {P}.", "{S} wanted to see something new, so {he} went to the {P}."};
inline constexpr std::array<Text, 2> kGoSaying = {"\"I am going to the {P},\" said {N}, and off {he} went.",
                                                  "\"Goodbye,\" said {N}, and {he} went to the {P}."};
inline constexpr std::array<Text, 2> kGoHolding = {"{S} carried {O} to the {P}.",
                                                   "{S} went to the {P} with {T}."};
inline constexpr std::array<Text, 5> kTakeLines = {
    "{S} picked up {O}.", "{S} took {O}.", "{S} saw {T} and picked it up.", "{S} found {T} and took it.",
    "{S} liked {O} very much, so {he} took it."};
inline constexpr std::array<Text, 4> kTakeOut = {
    "{S} took {O} out of the {C}.", "{S} opened the {C} and took out {T}.",
    "{S} looked in the {C}, found {T} and took it.", "{S} pulled {O} out of the {C}."};
inline constexpr std::array<Text, 5> kPutInLines = {
    "{S} put {O} in the {C}.", "{S} hid {O} in the {C}.", "{S} opened the {C} and put {O} inside.",
    "{S} dropped {O} into the {C}.", "{S} wanted to keep {O} safe, so {he} put it in the {C}."};
inline constexpr std::array<Text, 5> kPutDownLines = {
    "{S} put {O} down.", "{S} left {O} there.", "{S} dropped {O} in the {P}.", "{S} left {O} in the {P}.",
    "{S} put {O} on the ground."};
inline constexpr std::array<Text, 5> kGiveLines = {
    "{S} gave {O} to {Q}.", "{S} handed {O} to {Q}.", "{S} gave {Q} {T}.",
    "{Q} asked for {T}, so {N} gave it to {qhim}.",
    "\"This is for you, {Q},\" said {N}, and gave {qhim} {T}."};
inline constexpr std::array<Text, 4> kThanks = {"\"Thank you!\" said {Q}.", "\"Thank you, {N},\" said {Q}.",
                                                "{Q} smiled.", "\"How kind of you!\" said {Q}."};
inline constexpr std::array<Text, 4> kPaintLines = {
    "{S} painted {O} {K}.", "{S} had some {K} paint and painted {O} {K}.",
    "{S} got a brush and painted {O} {K}.", "\"I like {K} best,\" said {N}, and painted {O} {K}."};
inline constexpr std::array<Text, 4> kFeelLines = {"{S} felt {F}.", "now {S} was {F}.", "{S} was very {F}.",
                                                   "\"I am {F},\" said {N}."};
inline constexpr std::array<Text, 3> kTradeLines = {"{S} gave {T} to {Q} and got {U} for it.",
                                                    "{N} and {Q} traded. Now {N} had {U} and {Q} had {T}.",
                                                    "{S} traded with {Q}: {Q} got {T} and {N} got {U}."};

// Nothing changes in these, though they speak of the same people, places and things.
inline constexpr std::array<Text, 20> kAside = {"The sun was shining.",
                                                "A bird sang in a tree.",
                                                "The wind was soft and warm.",
                                                "A cat ran by.",
                                                "{N} laughed.",
                                                "{N} sang a little song.",
                                                "{N} looked at the sky.",
                                                "{N} wanted to see the {P}, but it was too far.",
                                                "{N} thought about {T}.",
                                                "{N} dreamed of a {K} {thing}.",
                                                "\"What a nice day!\" said {N}.",
                                                "\"I like {T},\" said {N}.",
                                                "\"I have never been so {F},\" said an old man.",
                                                "Nobody looked at the {C}.",
                                                "\"Once I had a {K} {thing},\" said an old woman.",
                                                "\"Come and play with me!\" said {N}.",
                                                "A little dog barked.",
                                                "{N} clapped {his} hands.",
                                                "{N} had some milk and a cookie.",
                                                "The road to the {P} was long."};

inline constexpr std::array<Text, 4> kAskThing = {
    "\"Where is {T}?\" asked {G}. It was in the {A}.", "\"I can not find {T},\" said {G}. It was in the {A}.",
    "{G} was looking for {T}. It was in the {A}.",
    "\"Do you know where {T} is?\" asked {G}. It was in the {A}."};
inline constexpr std::array<Text, 3> kAskHolder = {"\"Who has {T}?\" asked {G}. It was {A}.",
                                                   "{G} wanted to know who had {T}. It was {A}.",
                                                   "\"Where is {T}?\" asked {G}. Look, {A} had it."};
inline constexpr std::array<Text, 2> kAskColor = {"\"What color is {T}?\" asked {G}. It was {A}.",
                                                  "{G} looked at {T}. It was {A}."};
inline constexpr std::array<Text, 3> kAskPerson = {"\"Where is {N}?\" asked {G}. {S} was in the {A}.",
                                                   "\"Where did {N} go?\" asked {G}. {S} was in the {A}.",
                                                   "{G} was looking for {N}. {S} was in the {A}."};
inline constexpr std::array<Text, 2> kAskFeeling = {"\"How are you, {N}?\" asked {G}. {S} was {A}.",
                                                    "\"How is {N}?\" asked {G}. {S} was {A}."};

inline constexpr std::array<Text, 6> kEndings = {
    "It was a good day.",        "Then the sun went down.",
    "Soon it was time for bed.", "And that was the end of the day.",
    "What a day it was!",        "They would always remember this day."};

inline constexpr std::array<Text, 4> kGrownUps = {"Mother", "Father", "Grandma", "Grandpa"};

}  // namespace ddl::story
