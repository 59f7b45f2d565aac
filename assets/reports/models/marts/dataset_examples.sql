-- Of every dataset one typical edit: one that can be done from what its task says, that changes code and not comments or blanks
-- alone, that is trained on where there is one, and of those the one whose size is nearest to the median of the dataset.
with tasks as (
    select task_id, first(instruction order by teacher, attempt) as instruction,
        first(instruction_source order by teacher, attempt) as instruction_source, bool_or(answerable) as answerable
    from {{ ref('stg_trajectories') }}
    group by task_id
),

edits as (
    select
        edits.* exclude (instruction, instruction_source, answerable),
        coalesce(nullif(tasks.instruction, ''), edits.instruction) as instruction,
        coalesce(tasks.instruction_source, edits.instruction_source, 'none') as instruction_source,
        coalesce(tasks.answerable, edits.answerable, false) as answerable,
        -- without comments, blanks and the lines of block comments, as far as a pattern tells
        regexp_replace(edits.pre, '(?s)/\*.*?\*/|""".*?"""|(#|//)[^\n]*|\s', '', 'g')
        <> regexp_replace(edits.post, '(?s)/\*.*?\*/|""".*?"""|(#|//)[^\n]*|\s', '', 'g') as changes_code,
        abs(edits.pre_tokens + edits.post_tokens - median(edits.pre_tokens + edits.post_tokens) over (partition by dataset))
            as from_median
    from {{ source('lineage', 'edits') }} as edits
    left join tasks on tasks.task_id = edits.id
),

places as (
    select *, row_number() over (
        partition by dataset
        order by not answerable, not changes_code, instruction = '', split <> 'train', from_median, id
    ) as place
    from edits
)

select dataset, id, language, split, license, origin, tags, instruction, instruction_source, answerable, pre, post
from places
where place = 1
order by dataset
