-- Of every dataset the smallest edit of a size that shows something; one to train on, where there is one.
with places as (
    select
        id,
        row_number() over (
            partition by dataset
            order by not (least(pre_tokens, post_tokens) >= 60 and greatest(pre_tokens, post_tokens) <= 400),
                split <> 'train', pre_tokens + post_tokens, id
        ) as place
    from {{ ref('stg_edits') }}
)

select dataset, id, language, split, license, origin, tags, instruction, pre, post
from {{ source('lineage', 'edits') }}
where id in (select id from places where place = 1)
order by dataset
