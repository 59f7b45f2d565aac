{{ config(meta={'description': 'What is lost on the way and what arrives make up what there was.'}) }}
with sums as (
    select
        dataset,
        coalesce(sum(number) filter (step = 'at_source'), 0) as at_source,
        coalesce(sum(number) filter (step in ('not_stored', 'read')), 0) as seen,
        coalesce(sum(number) filter (step = 'outcomes'), 0) as outcomes,
        coalesce(sum(number) filter (step in ('dropped', 'contaminated', 'labels')), 0) as not_edits,
        coalesce(sum(number) filter (step = 'edits'), 0) as edits,
        coalesce(sum(number) filter (step in ('not_split', 'duplicates')), 0) as not_kept,
        coalesce(sum(number) filter (step = 'kept'), 0) as kept,
        coalesce(sum(number) filter (step = 'split'), 0) as in_splits
    from {{ ref('dataset_funnel') }}
    group by dataset
)

select dataset
from sums
where at_source <> seen or outcomes <> not_edits + edits or edits <> not_kept + kept or kept <> in_splits
